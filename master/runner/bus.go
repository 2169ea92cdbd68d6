package runner

import (
	"context"

	"saltern/master/event"
	"saltern/master/value"
)

// OnBus returns Events on the bus of this process. Events that runners fire there have the origin
// Runner, not Internal. If more than 4096 events wait for a listener, the listener loses further
// events.
func OnBus(b *event.Bus) Events { return onBus{b} }

type onBus struct{ bus *event.Bus }

func (o onBus) Fire(tag string, data *value.Map) error { return o.bus.FireBy(event.Runner, tag, data) }

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

// OnSockets returns the Events of the master that uses sockDir, for a command in another process.
// These Events fire events by calling fire.
func OnSockets(sockDir string, fire func(ctx context.Context, tag string, data *value.Map) error) Events {
	return onSockets{sockDir, fire}
}

type onSockets struct {
	dir  string
	fire func(ctx context.Context, tag string, data *value.Map) error
}

func (o onSockets) Fire(tag string, data *value.Map) error {
	return o.fire(context.Background(), tag, data)
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
