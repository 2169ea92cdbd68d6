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
	// channelFirst is when a node first asks for a newer version after its start,
	// channelEvery how often then, each a little later so that not all ask at once;
	// channelAgain is after a question without an answer.
	channelFirst = time.Minute
	channelEvery = 24 * time.Hour
	channelAgain = time.Hour
	channelApart = 10 * time.Minute
)

// Channel asks an address whether there is a newer version of the system, and has it
// shown. It installs nothing.
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
	answered := c.env.Now() // or begun to ask
	for wait := channelFirst; pause.For(ctx, wait+rand.N(channelApart)) == nil; {
		st, err := c.status()
		if err != nil {
			return // no image: its packages come from a distribution
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

// newerFindings says what is to be known of an offer.
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

// frozenFindings says that what is offered should have been followed by something newer: the mirror
// is stopped, or somebody holds it back.
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

// Findings say what there is; c may be nil.
func (c *Channel) Findings() []status.Finding {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found
}
