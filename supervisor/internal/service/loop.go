package service

import "context"

// Loop returns the spec of work inside this process: f works until its context ends, or returns
// earlier when its work is done. A manager does not list loops. It stops all loops at once, after
// all other services have stopped, and waits for them; see [Manager.Run].
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
