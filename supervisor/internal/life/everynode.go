package life

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"saltern/supervisor/status"
)

// everyNode asks nodes all at once, each by its function, and gives the answers to add,
// one at a time. Those that gave none are in unasked, each with the reason; when there is
// no answer at all it is an error.
func everyNode[T any](ask map[string]func() (T, error), add func(node string, v T)) (unasked map[string]string, err error) {
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
	if len(unasked) == len(ask) {
		why := unasked[slices.Min(slices.Collect(maps.Keys(ask)))]
		return nil, fmt.Errorf("no node answers: %s; next: applianced status", why)
	}
	return unasked, nil
}
