package mastersvc

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"saltern/supervisor/internal/child"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
)

// choosing is a choice whose master serves when the test says so.
type choosing struct {
	*Trial
	serves   atomic.Bool
	restarts atomic.Int32
}

func newChoosing(t *testing.T) *choosing {
	t.Helper()
	s := settings.Default("n1")
	s.DataDir, s.Storage.Path = t.TempDir(), t.TempDir()
	c := &choosing{}
	c.Trial = NewTrial(child.Env{
		Settings: &s,
		Log:      slog.New(slog.DiscardHandler),
		Now:      time.Now,
	}, layout.Account{}, c, func(context.Context) bool { return c.serves.Load() })
	return c
}

// Info implements masterService.
func (c *choosing) Info() service.Info {
	return service.Info{State: service.Running, Message: "waiting for it to answer"}
}

// Restart implements masterService.
func (c *choosing) Restart() error {
	c.restarts.Add(1)
	return nil
}

// file writes the administrator's file.
func (c *choosing) file(t *testing.T, text string) {
	t.Helper()
	err := os.MkdirAll(c.env.Settings.UserConfDir(), 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(c.env.Settings.UserConfDir(), "a.conf"), []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// start does what a start of the master does, and gives whether it has the options
// of now.
func (c *choosing) start() bool {
	now, refused := c.current()
	good, none := layout.GoodOptions(c.env.Settings)
	if refused != "" && none == nil {
		c.noteStart(good, false)
		return false
	}
	c.noteStart(now, none == nil && good.Mark != now.Mark)
	return true
}

func (c *choosing) good(t *testing.T) string {
	t.Helper()
	o, err := layout.GoodOptions(c.env.Settings)
	if err != nil {
		return ""
	}
	b, err := os.ReadFile(filepath.Join(o.Dir, "a.conf"))
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// Options count as good when the master has served with them for a while, and not
// because it could be started.
func TestOptionsOnTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChoosing(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()

		defer cancel()
		go c.Run(ctx)
		c.file(t, "one")
		c.start()
		time.Sleep(time.Hour)

		if c.restarts.Load() != 0 || c.good(t) != "" {
			t.Errorf("without others to go back to: %d restarts, good %q", c.restarts.Load(), c.good(t))
		}

		c.serves.Store(true)
		time.Sleep(trialHolds / 2)
		c.serves.Store(false) // it came up and fell at once
		time.Sleep(time.Second)

		if c.good(t) != "" {
			t.Error("good after a moment")
		}

		c.serves.Store(true)
		time.Sleep(2 * trialHolds)
		if c.good(t) != "one" {
			t.Errorf("good: %q", c.good(t))
		}

		c.file(t, "two") // it runs and never serves
		c.serves.Store(false)
		c.start()
		time.Sleep(trialTakes - time.Second)

		if c.restarts.Load() != 0 {
			t.Error("given up early")
		}

		time.Sleep(2 * time.Second)
		if _, why := c.current(); c.restarts.Load() != 1 ||
			!strings.Contains(why, "did not serve within 3m0s: waiting for it") {
			t.Errorf("%d restarts, %q", c.restarts.Load(), why)
		}

		if c.start() {
			t.Error("started with what was refused")
		}

		c.serves.Store(true)
		time.Sleep(2 * trialHolds)
		if _, why := c.current(); why == "" || c.good(t) != "one" {
			t.Errorf("after it went back: %q, good %q", why, c.good(t))
		}

		if after := NewTrial(c.env, layout.Account{}, c, c.counted); after.refused != c.refused { // the supervisor restarts
			t.Errorf("%+v", after.refused)
		}

		c.serves.Store(false)
		c.ForgetRefusal() // by hand
		if !c.start() {
			t.Error("not tried by hand")
		}

		c.masterEnded(errors.New("exit code 1"), []string{"first", "it cannot"})
		if _, why := c.current(); c.restarts.Load() != 2 ||
			why != "salt-master ended before it served (exit code 1): it cannot" {
			t.Errorf("%d restarts, %q", c.restarts.Load(), why)
		}

		c.file(t, "three")
		if !c.start() {
			t.Error("what was changed is still refused")
		}

		c.serves.Store(true)
		time.Sleep(2 * trialHolds)
		c.masterEnded(errors.New("exit code 1"), nil) // long after
		if _, why := c.current(); why != "" || c.restarts.Load() != 2 || c.good(t) != "three" {
			t.Errorf("%q, %d restarts, good %q", why, c.restarts.Load(), c.good(t))
		}
	})
}

// Somebody asks for new options, and takes them back when others did not serve.
func TestOptionsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChoosing(t)
		node := NewOptionsNode(OptionsConfig{Master: New(c.env, nil, nil, c.Trial)})
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()

		defer cancel()
		go c.Run(ctx)
		c.file(t, "one")
		c.serves.Store(true)
		c.start()
		time.Sleep(2 * trialHolds)
		c.file(t, "two")
		now, _ := c.current()

		if err := node.Try(ctx, "other", time.Minute); err == nil {
			t.Error("tried what is not there")
		}

		try := func() {
			t.Helper()
			if err := node.Try(ctx, now.Mark, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			if st, err := node.State(ctx, false); err != nil || !st.Trying || !st.Held {
				t.Errorf("%+v, %v", st, err)
			}
		}

		try() // and the start never comes to it: its port is taken, say
		time.Sleep(11 * time.Second)
		if _, why := c.current(); c.restarts.Load() != 2 || !strings.Contains(why, "did not serve within 10s") {
			t.Fatalf("%d restarts, %q", c.restarts.Load(), why)
		}

		c.start()
		time.Sleep(2 * trialHolds)
		try()
		if !c.start() {
			t.Error("not tried again")
		}

		time.Sleep(2 * trialHolds)
		st, err := node.State(ctx, false)
		if err != nil || !st.Current() || st.Trying || !st.Serving || !st.Held || c.good(t) != "two" {
			t.Fatalf("%+v, %v", st, err)
		}

		for range 2 {
			if err := node.Back(ctx, now.Mark, "n3 said no"); err != nil {
				t.Fatal(err)
			}

			if c.start() {
				t.Error("not taken back")
			}

			node.cfg.Master.setFallback("n3 said no")
			time.Sleep(2 * trialHolds)
		}

		if st, err = node.State(ctx, false); err != nil || st.Held || st.Current() || c.good(t) != "one" {
			t.Errorf("%+v, %v, good %q", st, err, c.good(t))
		}

		if _, why := c.current(); why != "n3 said no" {
			t.Errorf("%q", why)
		}
	})
}
