package renderer

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/wheel"
)

// Packages that come, change and go are there for the next minion, without a
// restart; who is being rendered for meanwhile is not disturbed.
func TestLayerRenewsWorkers(t *testing.T) {
	dir := t.TempDir()
	var now string
	put := func(n int) {
		layer := filepath.Join(dir, fmt.Sprint(n))
		wheel.Unpacked(t, layer, wheel.Pillar("saltext.try", fmt.Sprintf("version %d", n)))
		now = layer
	}

	p, _ := pool(t, nil, func(c *Config) {
		c.Layer = func() string { return now }
		c.WorkerIdle, c.IdleStop = 200*time.Millisecond, time.Minute
	})

	ask := func(s *Session) string {
		v, _, err := s.ExtPillar(t.Context(), value.NewMap(), []any{value.NewMap("try_pillar", value.NewMap())}, nil, nil)
		if err != nil {
			return err.Error()
		}
		return v.Str("try")
	}

	fresh := func() string {
		s, err := p.Session(t.Context(), Minion{ID: "m"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return ask(s)
	}

	if got := fresh(); got != "" {
		t.Errorf("without packages: %q", got)
	}

	put(1)
	if got := fresh(); got != "version 1" {
		t.Errorf("after the first: %q", got)
	}

	long, err := p.Session(t.Context(), Minion{ID: "long"})
	if err != nil {
		t.Fatal(err)
	}
	defer long.Close()

	of := long.worker.nursery
	put(2)
	if got := fresh(); got != "version 2" {
		t.Errorf("after the second: %q", got)
	}

	if got := ask(long); got != "version 1" {
		t.Errorf("a session that goes on: %q", got)
	}

	if !of.Alive() {
		t.Error("a process in use was ended")
	}

	long.Close()
	select {
	case <-of.Done():
	case <-time.After(30 * time.Second):
		t.Error("a process without use is not ended")
	}

	now = ""
	if got := fresh(); got != "" {
		t.Errorf("all are gone: %q", got)
	}

	if s := p.Stats(); s.Starts != 4 {
		t.Errorf("%+v", s)
	}

	_ = os.RemoveAll(dir)
}
