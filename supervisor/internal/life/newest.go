package life

import (
	"context"
	"errors"

	"saltern/internal/control"
	"saltern/supervisor/internal/everynode"
	"saltern/supervisor/storage"
)

// newest makes the files from which this node's master serves as they are now.
func (n *Life) newest(ctx context.Context) control.Newest {
	if n.volume == nil || n.cfg.Move != nil || n.cfg.Settings.Arbiter { // or it has no master
		return control.Newest{Direct: true}
	}
	asOf, err := n.volume.Newest(ctx)
	out := control.Newest{AsOf: asOf, Copy: n.cfg.Settings.MirrorDir(), Source: n.cfg.Settings.Storage.Path}
	var unsteady *storage.Unsteady
	switch {
	case errors.As(err, &unsteady):
		out.Except = unsteady.Error()
	case err != nil:
		out.Why = err.Error()
	}
	return out
}

// Newest implements [control.Supervisor]. It is not bounded by a rate: any number of
// questions share one pass, and one pass is made at a time.
func (d *door) Newest(ctx context.Context, q control.NewestQuestion) (control.Newest, error) {
	if !q.All {
		return d.newest(ctx), nil
	}

	own := make(chan control.Newest, 1)
	go func() { own <- d.newest(ctx) }() // ends with ctx

	ask := map[string]func() (struct{}, error){}
	for name, p := range d.peers() {
		ask[name] = func() (struct{}, error) { return struct{}{}, p.Newest(ctx) }
	}

	others := everynode.Ask(ask, func(string, struct{}) {})
	out := <-own
	out.Others = others
	return out, nil
}
