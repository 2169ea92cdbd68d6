package member

import (
	"testing"
	"time"

	"saltern/supervisor/nodes"
)

// TestTurnIsGivenBack: a node that has restarted keeps the turn until its own master serves; the answers of other
// nodes' masters at its front do not count. One whose master stays broken does not keep it for ever.
func TestTurnIsGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		observer   Observer
		since      time.Duration // of the turn
		restarted  bool
		trial      bool
		options    bool
		wantsGiven bool
	}{
		"does all its work":               {serving{}, time.Minute, true, false, false, true},
		"is to restart":                   {serving{}, time.Minute, false, false, false, false},
		"did not restart":                 {serving{}, 16 * time.Minute, false, false, false, true},
		"others serve its minions":        {servedElsewhere{}, time.Minute, true, false, false, false},
		"others serve them for long":      {servedElsewhere{}, 31 * time.Minute, true, false, false, true},
		"serves nobody":                   {idle{}, 29 * time.Minute, true, false, false, false},
		"serves nobody for long":          {idle{}, 31 * time.Minute, true, false, false, true},
		"goes back to its version before": {idle{}, 31 * time.Minute, true, true, false, false},
		"options of a start before":       {idle{}, time.Second, true, false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, start, _ := keyed(t)
			m := start()
			own := m.env.Settings.Node
			life := m.turns.life
			if c.restarted {
				life = "before"
			}

			began := m.env.Now()
			m.turns.observer = c.observer
			m.turns.onTrial = func() bool { return c.trial }
			m.turns.env.Now = func() time.Time { return began.Add(c.since) }
			_, err := m.keeper.Change(t.Context(), func(t *nodes.Table) error {
				return t.TakeTurn(nodes.Turn{Node: own, Life: life, Since: began, Options: c.options}, false)
			})
			if err != nil {
				t.Fatal(err)
			}

			m.turns.reconcile(t.Context())
			m.turns.returning.Wait(10 * time.Second)
			table := m.keeper.Table()
			if given := table.Turn == nil; given != c.wantsGiven {
				t.Errorf("given back: %v", given)
			}
		})
	}
}
