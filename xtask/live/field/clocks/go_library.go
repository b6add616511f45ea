// A library in Go for programs of other languages; its runtime handles SIGURG from the moment it is loaded.
package main

import "C"

//export GoTotal
func GoTotal(count C.longlong) C.longlong {
	results := make(chan int64)
	for part := int64(0); part < 4; part++ {
		go func() {
			sum := int64(0)
			for number := part; number < int64(count); number += 4 {
				sum += number
			}
			results <- sum
		}()
	}
	total := int64(0)
	for part := 0; part < 4; part++ {
		total += <-results
	}
	return C.longlong(total)
}

func main() {}
