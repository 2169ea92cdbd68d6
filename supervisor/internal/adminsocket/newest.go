package adminsocket

import (
	"context"

	"saltern/internal/control"
	"saltern/supervisor/internal/everynode"
)

// Newest implements [control.Supervisor]. It is not bounded by a rate: any number of
// questions share one pass, and one pass is made at a time.
func (s *Socket) Newest(ctx context.Context, q control.NewestQuestion) (control.Newest, error) {
	if !q.All {
		return s.cfg.Newest(ctx), nil
	}

	own := make(chan control.Newest, 1)
	go func() { own <- s.cfg.Newest(ctx) }() // ends with ctx

	ask := map[string]func() (struct{}, error){}
	for name, p := range s.peers() {
		ask[name] = func() (struct{}, error) { return struct{}{}, p.Newest(ctx) }
	}

	others := everynode.Ask(ask, func(string, struct{}) {})
	out := <-own
	out.Others = others
	return out, nil
}
