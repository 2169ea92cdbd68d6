package adminsocket

import (
	"context"

	"saltern/internal/control"
)

// Minion implements [control.Supervisor]. It asks the masters of all nodes.
func (s *Socket) Minion(ctx context.Context, q control.MinionQuestion) (control.MinionPlaces, error) {
	if err := s.checkRate(&s.read, readRate()); err != nil {
		return control.MinionPlaces{}, err
	}
	list, err := s.cfg.Masters.Minions(ctx, false)
	if err != nil {
		return control.MinionPlaces{}, err
	}

	out := control.MinionPlaces{Unasked: list.Unasked}
	for _, m := range list.Minions {
		if m.ID != q.Minion || m.Key != "accepted" {
			continue
		}
		out.Connected = m.Connected
		out.Node = m.Node
		out.Address = m.Address
		out.Refused = m.Refused
		if m.Seen != nil {
			out.Seen = *m.Seen
		}
	}
	return out, nil
}
