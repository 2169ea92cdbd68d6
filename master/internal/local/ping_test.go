package local

import (
	"strings"
	"testing"

	"saltern/internal/control"
	"saltern/master/internal/request"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// TestPingTellsTrouble: load balancers that know our field read why this master can keep no
// jobs, of whatever length it is, and others that they are to send nobody. (Finding F4.)
func TestPingTellsTrouble(t *testing.T) {
	trouble := ""
	ping := New(Config{Trouble: func() string { return trouble }}).Methods()["ping"]
	for n := range 256 {
		trouble = strings.Repeat("é", n/2) + strings.Repeat("x", n%2)
		answer, err := ping.Do(t.Context(), &request.Call{Load: value.NewMap("cmd", "ping")})
		if err != nil {
			t.Fatal(err)
		}

		b, err := msgpack.Marshal(answer, msgpack.Raw)
		if err != nil {
			t.Fatal(err)
		}

		if got := control.PingTrouble(b); got != trouble {
			t.Errorf("%d bytes: %q", n, got)
		}

		m, _ := answer.(*value.Map)
		if healthy := m.Str("cmd") == "ping"; healthy != (n == 0) || m.Bool("cluster_retry") == healthy {
			t.Errorf("%d bytes: %v", n, value.Repr(m))
		}
	}
}
