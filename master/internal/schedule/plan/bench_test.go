package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"saltern/master/value"
)

// BenchmarkLook1000 looks at a thousand entries, as the master does each second.
func BenchmarkLook1000(b *testing.B) {
	now := time.Date(2026, 11, 28, 16, 0, 0, 0, time.UTC)
	g := generator{rand.New(rand.NewPCG(1, 1)), now, 60, 1}
	option := value.NewMap()
	for i := range 1000 {
		option.Set(fmt.Sprint("e", i), g.entry(i))
	}

	p, _ := Read(option, nil)
	states := make([]State, len(p.Entries))
	look := Look{Enabled: true, Splay: SameSplay}
	for b.Loop() {
		for i, e := range p.Entries {
			states[i] = e.Walk(states[i], now, now.Add(Tick), look, func(time.Time, string) bool { return true })
		}
		now = now.Add(Tick)
	}
}
