// Package everynode asks all nodes of a cluster at the same time.
package everynode

import (
	"sync"

	"saltern/supervisor/status"
)

// Ask calls each node's function concurrently, and passes the answers to add, one at a time.
// unasked maps each node without an answer to the reason, a bounded text.
func Ask[T any](ask map[string]func() (T, error), add func(node string, v T)) (unasked map[string]string) {
	unasked = map[string]string{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for name, f := range ask {
		all.Go(func() {
			v, err := f()
			mu.Lock()
			defer mu.Unlock()

			if err != nil {
				unasked[name] = status.Clip(err.Error())
				return
			}

			add(name, v)
		})
	}

	all.Wait()
	return unasked
}
