package upgrading

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"saltern/image/bundle"
	"saltern/internal/pause"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/status"
	"saltern/supervisor/upgrade"
)

const (
	// A node looks for a newer version channelFirst after its start and then every channelEvery, or
	// after channelAgain if there was no answer. Each time it adds up to channelApart, so that not
	// all nodes ask at once.
	channelFirst = time.Minute
	channelEvery = 24 * time.Hour
	channelAgain = time.Hour
	channelApart = 10 * time.Minute
)

// Channel asks an address for a newer version of the system, and reports that version in the
// status. It installs nothing.
type Channel struct {
	env     child.Env
	status  func() (upgrade.Status, error)
	offered func(ctx context.Context, st upgrade.Status) (bundle.Manifest, error)

	mu    sync.Mutex
	found []status.Finding
}

// NewChannel returns the channel of the system, or nil if the settings have no address to ask.
func NewChannel(env child.Env, system *System) *Channel {
	if env.Settings.Upgrade.URL == "" {
		return nil
	}
	return &Channel{env: env, status: system.sys.Status,
		offered: func(ctx context.Context, st upgrade.Status) (bundle.Manifest, error) {
			keys, err := bundle.Keys(upgrade.KeyDirs()...)
			if err != nil {
				return bundle.Manifest{}, err
			}
			return st.Offered(ctx, env.Settings.Upgrade.URL, keys)
		}}
}

// Run asks until ctx ends.
func (c *Channel) Run(ctx context.Context) {
	answered := c.env.Now() // time of the last answer, or of the start
	for wait := channelFirst; pause.For(ctx, wait+rand.N(channelApart)) == nil; {
		st, err := c.status()
		if err != nil {
			return // not made from the image: a distribution provides its packages
		}

		m, err := c.offered(ctx, st)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			answered, wait = c.env.Now(), channelEvery
			c.setFindings(append(newerFindings(st, m), frozenFindings(m, c.env.Now())...))
		default:
			wait = channelAgain
			c.env.Log.Warn("whether there is a newer version of the system cannot be told", "error", err)
			if c.env.Now().Sub(answered) > 3*24*time.Hour {
				c.setFindings([]status.Finding{{
					Code: status.SystemUnasked,
					Cause: fmt.Sprintf("no answer since %s: %s", answered.UTC().Format("2006-01-02"),
						status.Clip(err.Error())),
				}})
			}
		}
	}
}

// newerFindings returns the finding that the status shows about an offered version, if there is
// one.
func newerFindings(st upgrade.Status, m bundle.Manifest) []status.Finding {
	if !st.Newer(m) {
		return nil
	}
	return []status.Finding{{
		Code: status.SystemNewer,
		Cause: fmt.Sprintf("version %s, built %s, is offered; %s runs here", m.Version,
			m.Created.UTC().Format("2006-01-02"), status.Clip(st.Version)),
	}}
}

// frozenFindings returns a finding if a version newer than the offered one should exist by now: the
// mirror has stopped, or somebody holds the newer version back.
func frozenFindings(m bundle.Manifest, now time.Time) []status.Finding {
	if m.Next.IsZero() || now.Before(m.Next.Add(channelEvery)) { // a mirror may be a day behind
		return nil
	}
	day := func(t time.Time) string { return t.UTC().Format("2006-01-02") }
	return []status.Finding{{
		Code: status.SystemFrozen,
		Cause: fmt.Sprintf("version %s, built %s, is offered, and something newer was promised for %s",
			m.Version, day(m.Created), day(m.Next)),
	}}
}

func (c *Channel) setFindings(found []status.Finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found = found
}

// Findings returns the findings of the channel. c may be nil: there is no channel.
func (c *Channel) Findings() []status.Finding {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found
}
