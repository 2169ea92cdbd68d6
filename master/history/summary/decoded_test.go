package summary

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// maker makes values such as minions return, and others that they should not.
type maker struct{ *rand.Rand }

func (m maker) one(of ...any) any { return of[m.IntN(len(of))] }

func (m maker) plain() any {
	return m.one(nil, true, false, int64(0), int64(2), int64(-1), 0.0, 1.5, "", "text", "VALUE_TRIMMED: too large", []byte("bytes"),
		[]byte{0xff, 0}, "\n\nsecond line")
}

func (m maker) tag() any {
	return m.one("file_|-a_|-/etc/a_|-managed", "pkg_|-x_|-_|-y_|-installed", "test.ping", "local", "_|-_|-",
		int64(7), "state.apply")
}

func (m maker) content(depth int) any {
	if depth == 0 {
		return m.plain()
	}
	switch m.IntN(6) {
	case 0:
		list := []any{}
		for range m.IntN(4) {
			list = append(list, m.content(depth-1))
		}
		return list
	case 1, 2:
		out := value.NewMap()
		for range m.IntN(4) {
			out.Set(m.tag(), m.content(depth-1))
		}
		return out
	case 3, 4:
		state := value.NewMap("comment", m.plain())
		if m.IntN(3) > 0 {
			state.Set("result", m.one(nil, true, false, m.plain()))
		}
		for _, name := range []string{"changes", "duration"} {
			if m.IntN(3) > 0 {
				state.Set(name, m.one(m.plain(), value.NewMap(), value.NewMap("new", m.plain()), []any{m.plain()}))
			}
		}
		return state
	}
	return m.plain()
}

// TestResultOfAnything: whatever a minion returns, its result is the same from the packed return, by which the
// history and the page Fleet tell it, and from the decoded one, by which the page of a job does.
// SALTERN_RETURNS sets the number of returns; more are made until each result has occurred.
func TestResultOfAnything(t *testing.T) {
	t.Parallel()
	n, err := strconv.Atoi(os.Getenv("SALTERN_RETURNS"))
	if err != nil {
		n = 2000
	}
	seed := rand.Uint64()
	m := maker{rand.New(rand.NewPCG(seed, 0))}
	seen := map[Result]int{}
	for i := 0; i < n || len(seen) < len(Results()) && i < 20*n; i++ {
		function := m.one("state.apply", "state.sls,test.ping", "state.apply,state.apply", "test.ping,state.apply,cmd.run",
			"cmd.run", "test.ping", "publish.publish").(string)
		ret := value.NewMap()
		for _, name := range []string{"return", "retcode", "success"} {
			if m.IntN(8) > 0 {
				ret.Set(name, m.one(m.content(4), m.content(3), m.content(2)))
			}
		}

		content, err := msgpack.Marshal(ret, msgpack.Modern)
		if err != nil {
			t.Fatal(err)
		}
		want := OfPacked(function, content).Result
		seen[want]++
		if got := ResultOf(function, ret); got != want {
			t.Fatalf("seed %d, %s: decoded %s, packed %s: %s", seed, function, got, want, value.Repr(ret))
		}
	}
	if len(seen) < len(Results()) {
		t.Errorf("seed %d: only these results: %v", seed, seen)
	}
}
