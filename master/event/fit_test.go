package event

import (
	"fmt"
	"strings"
	"testing"

	"saltern/master/value"
)

// TestFit: an answer stays as it is up to its limit, and is within it beyond, with all keys.
func TestFit(t *testing.T) {
	const limit = 4 << 20
	for _, minions := range []int{1, 10, 1000, 5000} {
		for _, size := range []int{10, 1000, 70_000} {
			t.Run(fmt.Sprint(minions, " ", size), func(t *testing.T) {
				if minions*size > 40<<20 {
					return
				}
				result := &value.Map{}
				for i := range minions {
					result.Set(fmt.Sprintf("minion%d", i), value.NewMap("return", strings.Repeat("x", size)))
				}
				data := value.NewMap("jid", "20261129080000000000", "return", value.NewMap("Result", result))

				got := Fit(data, limit)
				if n := packedSize(got); n > limit {
					t.Errorf("%d bytes", n)
				}
				if whole := packedSize(data) <= limit; whole != (packedSize(got) == packedSize(data)) {
					t.Errorf("%d bytes of %d", packedSize(got), packedSize(data))
				}
				if n := got.Map("return").Map("Result").Len(); n != minions {
					t.Errorf("%d minions", n)
				}
			})
		}
	}
}
