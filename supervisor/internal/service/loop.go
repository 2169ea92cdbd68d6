package service

import "context"

// Loop is the spec of work inside this process: f runs until its context ends,
// or is done before. A manager does not show loops, stops them when all other
// services have stopped, all at once, and waits for them.
func Loop(name string, f func(context.Context)) Spec {
	return Spec{Name: name, Runner: loop(f), loop: true}
}

type loop func(context.Context)

// Run implements [Runner].
func (l loop) Run(ctx context.Context, started func(pid int)) error {
	started(0)
	l(ctx)
	<-ctx.Done()
	return nil
}
