// Encodes a pprof file with google/pprof: `time FILE ROUNDS` prints the median in milliseconds without and with gzip,
// `memory FILE` the peak of the resident memory during one encoding above that before, in MB.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

func main() {
	switch {
	case len(os.Args) == 4 && os.Args[1] == "time":
		rounds, err := strconv.Atoi(os.Args[3])
		check(err)
		decoded := read(os.Args[2])
		fmt.Printf("%.3f %.3f\n", median(rounds, decoded.WriteUncompressed), median(rounds, decoded.Write))
	case len(os.Args) == 3 && os.Args[1] == "memory":
		fmt.Printf("%.1f\n", peak(read(os.Args[2])))
	default:
		fmt.Fprintln(os.Stderr, "expected `time FILE ROUNDS` or `memory FILE`")
		os.Exit(2)
	}
}

func read(path string) *profile.Profile {
	file, err := os.ReadFile(path)
	check(err)
	decoded, err := profile.ParseData(file)
	check(err)
	return decoded
}

func median(rounds int, write func(io.Writer) error) float64 {
	var times []float64
	// The first round fills the heap.
	for round := 0; round <= rounds; round++ {
		var out bytes.Buffer
		begun := time.Now()
		check(write(&out))
		if round > 0 {
			times = append(times, float64(time.Since(begun).Nanoseconds())/1e6)
		}
	}
	slices.Sort(times)
	return times[len(times)/2]
}

func peak(decoded *profile.Profile) float64 {
	// The memory of reading is returned to the system, so that it does not count as that of the encoder.
	debug.FreeOSMemory()
	check(os.WriteFile("/proc/self/clear_refs", []byte("5"), 0))
	before := status("VmRSS:")
	var out bytes.Buffer
	check(decoded.WriteUncompressed(&out))
	after := status("VmHWM:")
	runtime.KeepAlive(decoded)
	return after - before
}

// status is a size in /proc/self/status, in MB.
func status(key string) float64 {
	text, err := os.ReadFile("/proc/self/status")
	check(err)
	for _, line := range strings.Split(string(text), "\n") {
		if rest, found := strings.CutPrefix(line, key); found {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			check(err)
			return kib * 1024 / 1e6
		}
	}
	panic(key + " is missing in /proc/self/status")
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
