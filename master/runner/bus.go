package runner

import (
	"context"
	"time"

	"saltern/master/event"
	"saltern/master/value"
)

// fireTimeout bounds how long a master that does not read may hold a sender.
const fireTimeout = 10 * time.Second

// OnBus makes Events of the bus of this process. A listener that falls more
// than 4096 events behind loses some.
func OnBus(b *event.Bus) Events { return onBus{b} }

type onBus struct{ bus *event.Bus }

func (o onBus) Fire(tag string, data *value.Map) error { return o.bus.Fire(tag, data) }

func (o onBus) Listen(ctx context.Context, visit func(event.Event) bool) error {
	sub := o.bus.Subscribe("runner", 4096, nil)
	defer sub.Close()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-sub.C:
			if !ok || !visit(e) {
				return nil
			}
		}
	}
}

// OnSockets makes Events of the sockets of the master that uses sockDir, for
// a command in a process of its own.
func OnSockets(sockDir string) Events { return onSockets{sockDir} }

type onSockets struct{ dir string }

func (o onSockets) Fire(tag string, data *value.Map) error {
	ctx, cancel := context.WithTimeout(context.Background(), fireTimeout)
	defer cancel()
	s, err := event.DialPull(ctx, o.dir)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Fire(ctx, tag, data)
}

func (o onSockets) Listen(ctx context.Context, visit func(event.Event) bool) error {
	l, err := event.DialPub(ctx, o.dir)
	if err != nil {
		return err
	}
	defer l.Close()
	for {
		e, err := l.Next(ctx)
		if err != nil {
			return err
		}
		if !visit(e) {
			return nil
		}
	}
}
