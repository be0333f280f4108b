package control

import "sync"

// AtOnce is the number of streams that Each handles at a time.
const AtOnce = 16

// Each calls do for the streams 0 to n-1, for AtOnce of them at a time, and waits for all.
func Each(n int, do func(i int)) {
	var asking sync.WaitGroup
	places := make(chan struct{}, AtOnce)
	for i := range n {
		places <- struct{}{}
		asking.Go(func() {
			defer func() { <-places }()
			do(i)
		})
	}
	asking.Wait()
}
