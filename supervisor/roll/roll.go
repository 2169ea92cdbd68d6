// Package roll drives rolling changes, which all nodes of a cluster make one after another: new
// options of the masters, and new versions of the system. It asks all nodes for their state at the
// same time, and carries out one rolling change at a time. The packages that use it decide which
// state of a node is acceptable.
package roll

import (
	"context"
	"sync"
	"time"
)

// Ask calls f with a context that ends after limit.
func Ask(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return f(ctx)
}

// Each asks all nodes at the same time, each for at most limit, and returns their errors in the
// order of the nodes.
func Each[N any](ctx context.Context, nodes []N, limit time.Duration, f func(context.Context, N) error) []error {
	errs := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		all.Go(func() {
			errs[i] = Ask(ctx, limit, func(ctx context.Context) error { return f(ctx, n) })
		})
	}
	all.Wait()
	return errs
}
