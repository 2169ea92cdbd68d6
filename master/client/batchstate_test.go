package client

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/batch"
	"saltern/master/msgpack"
)

func TestBatchSize(t *testing.T) {
	for _, c := range []struct {
		spec string
		n    int
		want int
	}{
		{"1", 10, 1}, {"3", 10, 3}, {" 4 ", 10, 4}, {"0", 10, 1}, {"-5", 10, 1}, {"25%", 8, 2}, {"10%", 3, 1}, {"50%", 3, 1},
		{"%10", 30, 3}, {"100%", 7, 7}, {"0%", 7, 1}, {"33.4%", 9, 3}, {"1000%", 2, 20}, {"5%", 0, 1},
	} {
		got, err := batchSize(c.spec, c.n)
		if err != nil || got != c.want {
			t.Errorf("%q of %d: got %d, %v, want %d", c.spec, c.n, got, err, c.want)
		}
	}

	for _, bad := range []string{"", "x", "10x", "x%", "1.5", "%", "nan%", "inf%"} {
		if n, err := batchSize(bad, 5); err == nil {
			t.Errorf("%q: got %d, want an error", bad, n)
		} else if !strings.Contains(err.Error(), "must be an integer or percentage string") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestValidSize: the master takes each size that batchSize takes, for as many minions.
func TestValidSize(t *testing.T) {
	const seed = 7
	dice := rand.New(rand.NewPCG(seed, 0))
	specs := []string{"10 %", " 5 % ", "%10", "0%", "1000%", "-5", "0", " 007", "+3", "1000001", "999999999999", "5%%", "0.01 %"}
	for range 5000 {
		spec := make([]byte, 1+dice.IntN(5))
		for i := range spec {
			spec[i] = "0123456789%%%+-. e"[dice.IntN(18)]
		}
		specs = append(specs, string(spec))
	}

	for _, spec := range specs {
		const minions = 1000
		want, err := batchSize(spec, minions)
		if err != nil {
			continue
		}
		got, err := batch.SizeOf(validSize(spec), minions)
		if err != nil || min(got, minions) != min(want, minions) {
			t.Errorf("%q is %d minions, and as %q for the master %d, %v", spec, want, validSize(spec), got, err)
		}
	}
}

func TestBatchPayload(t *testing.T) {
	b := batch.New([]string{"a", "b"}, 1)
	b.Next(time.Unix(0, 0))
	p := payload("cli", b, []string{"a", "b"},
		BatchRequest{Request: Request{Target: "*", TargetType: "glob", Fun: "test.ping", Arg: []any{}}, JID: "1"},
		"root", time.Unix(0, 0), time.Unix(1, 0))
	if _, err := msgpack.Marshal(p, msgpack.Modern); err != nil {
		t.Error(err)
	}
	if s := p.Map("state"); s.Str("driver") != "cli" || len(s.List("pending")) != 1 || s.Map("active").Len() != 1 {
		t.Errorf("state %v", s)
	}
}
