// Package everynode asks the nodes of a cluster all at once.
package everynode

import (
	"sync"

	"saltern/supervisor/status"
)

// Ask asks nodes, each by its function, and gives the answers to add, one at a time.
// Those that gave none are in unasked, each with the reason as a text of bounded length.
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
