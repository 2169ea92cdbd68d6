package adminsocket

import (
	"context"

	"saltern/internal/control"
	"saltern/supervisor/internal/everynode"
)

// Newest implements [control.Supervisor]. It needs no rate limit, because any number of requests
// share one pass of the copier, and only one such pass runs at a time.
func (s *Socket) Newest(ctx context.Context, q control.NewestQuestion) (control.Newest, error) {
	if !q.All {
		return s.cfg.Newest(ctx), nil
	}

	own := make(chan control.Newest, 1)
	go func() { own <- s.cfg.Newest(ctx) }() // this goroutine ends when ctx ends

	ask := map[string]func() (struct{}, error){}
	for name, p := range s.peers() {
		ask[name] = func() (struct{}, error) { return struct{}{}, p.Newest(ctx) }
	}

	others := everynode.Ask(ask, func(string, struct{}) {})
	out := <-own
	out.Others = others
	return out, nil
}
