package peers

import (
	"context"
	"crypto/rand"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/cache"
	"saltern/master/cluster/wire"
	"saltern/master/crypt"
	"saltern/master/event"
	"saltern/master/internal/launch"
	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

type noProblems struct{}

func (noProblems) Report(control.Fault, error) {}

// jobsOf opens the job cache of a master in the shared folder dir.
func jobsOf(t *testing.T, id, dir string) *jobs.Cluster {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	local, err := jobs.Open(jobs.Config{Dir: filepath.Join(t.TempDir(), "jobs"), Shared: true}, log)
	check.Must(t, err)
	c, err := jobs.OpenCluster(jobs.ClusterConfig{
		ID:       id,
		Dir:      dir,
		Local:    local,
		Peers:    noPeers{},
		Keep:     time.Hour,
		Degraded: func(error) {},
		Log:      log,
	})
	check.Must(t, err)
	return c
}

// TestStartIsHandedOverOnce: what a master stores of a job and what it announces of it differ. A peer that has the job
// by the announcement recognises it in the shared folder, and does not hand it over again.
func TestStartIsHandedOverOnce(t *testing.T) {
	t.Parallel()
	loads := map[string]*value.Map{
		"salt": value.NewMap("ret", "postgres", "tgt", "web*", "fun", "state.apply", "tgt_type", "glob", "user", "ann",
			"arg", []any{"a", value.NewMap("__kwarg__", true, "x", 1.5)}, "kwargs", value.NewMap("delimiter", "|"), "token", "t"),
		"no target type": value.NewMap("fun", "test.ping", "arg", []any{}, "tgt", "web1"),
		"no arguments":   value.NewMap("tgt", "*", "fun", "test.ping", "user", "root"),
		"no minions":     value.NewMap("tgt", "db*", "fun", "test.ping", "arg", []any{}, "user", "root"),
		"compound": value.NewMap("tgt", []any{"web2", "web1"}, "tgt_type", "list", "fun", []any{"test.ping", "cmd.run"},
			"arg", []any{[]any{}, []any{"\u00e9"}}, "user", "root"),
		"chosen id": value.NewMap("jid", jid, "fun", "test.ping", "arg", []any{nil, 1 << 40}, "tgt", "*", "user", "ann"),
	}
	for name, load := range loads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			peer := jobsOf(t, "m1", dir)
			defer func() { check.Must(t, peer.Close(await.Context(t))) }()
			r := newReached(t, func(c *Config) { c.Jobs = peer })

			starter := jobsOf(t, "m2", dir)
			minionData, err := cache.Open(t.TempDir(), 1<<20, keys.ValidID)
			check.Must(t, err)
			log := slog.New(slog.DiscardHandler)
			key, err := crypt.NewKey(rand.Reader)
			check.Must(t, err)
			start := launch.New(launch.Config{
				Targets:  &launch.Targets{Accepted: func() []string { return []string{"web2", "web1"} }, Cache: minionData},
				Jobs:     starter,
				Now:      time.Now,
				Started:  time.Now(),
				Problems: noProblems{},
				Publish:  func(context.Context, *value.Map, []string) error { return nil },
				Fire: func(tag string, data *value.Map) {
					sealed, err := wire.SealEvent(data, key)
					check.Must(t, err)
					blob, err := wire.Blob(sealed)
					check.Must(t, err)
					opened, err := wire.OpenEvent(blob, key)
					check.Must(t, err)
					check.Must(t, r.Event(t.Context(), "m2", event.Event{
						Tag:    tag,
						Data:   opened,
						Origin: event.Peer,
						Maker:  event.Internal,
					}))
				},
				Log:   log,
				Quiet: log,
			})
			job, err := start.New(t.Context(), load)
			check.Must(t, err)
			check.Must(t, start.Start(t.Context(), job))
			if n := peer.ClusterStats().Held; n == 0 {
				t.Error("the peer has not learned the job")
			}

			check.Must(t, starter.Close(await.Context(t))) // this hands over
			check.Must(t, peer.Import(t.Context()))
			if n := peer.ClusterStats().Held; n != 0 {
				t.Errorf("the peer will hand over %d records that the shared folder has", n)
			}
		})
	}
}
