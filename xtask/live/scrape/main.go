// A service with net/http/pprof and known profiles, for `spanprof scrape`. It prints its address, then burns CPU in
// burnCPU and makes goroutines wait for a mutex. GET /allocate?blocks=N allocates N blocks in allocateKnown. The argument is
// the address to listen on.
package main

import (
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

const blockBytes = 1 << 16

var (
	retained [][]byte
	recent   []byte
	guarded  sync.Mutex
	sink     uint64
)

//go:noinline
func allocateKnown() []byte {
	return make([]byte, blockBytes)
}

//go:noinline
func burnCPU(until time.Time) {
	for time.Now().Before(until) {
		for i := uint64(0); i < 100_000; i++ {
			sink += i * i
		}
	}
}

//go:noinline
func holdMutex() {
	guarded.Lock()
	time.Sleep(2 * time.Millisecond)
	guarded.Unlock()
}

func main() {
	// Every allocation and every wait, so that the profiles are exact.
	runtime.MemProfileRate = 1
	runtime.SetBlockProfileRate(1)
	runtime.SetMutexProfileFraction(1)
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for i := 0; i < 16; i++ {
		retained = append(retained, allocateKnown())
	}
	http.HandleFunc("/allocate", func(out http.ResponseWriter, request *http.Request) {
		blocks, _ := strconv.Atoi(request.FormValue("blocks"))
		for i := 0; i < blocks; i++ {
			recent = allocateKnown()
		}
		fmt.Fprintln(out, blocks)
	})
	for i := 0; i < 2; i++ {
		go func() {
			for {
				holdMutex()
			}
		}()
	}
	go func() {
		for {
			burnCPU(time.Now().Add(5 * time.Millisecond))
			time.Sleep(10 * time.Millisecond)
		}
	}()
	fmt.Println(listener.Addr())
	fmt.Println(http.Serve(listener, nil))
}
