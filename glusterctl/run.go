package glusterctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"saltern/glusterctl/cli"
	"saltern/internal/command"
)

// runStep carries out one step.
func (c *Controller) runStep(ctx context.Context, d Desired, s Step, progress func(Event)) error {
	switch s.Kind {
	case StartDaemon:
		return c.startDaemon(ctx, s, progress)
	case WaitPool:
		return c.pollUntil(ctx, s, progress, c.cfg.RetryFor, func() (bool, string) {
			o, err := c.ObserveQuick(ctx, d)
			if err != nil {
				return false, err.Error()
			}
			p := NewPlan(o, d)
			waits := slices.ContainsFunc(p.Steps, func(x Step) bool { return x.ID == s.ID })
			return !waits, s.Why
		})
	case Probe:
		// A probe of a silent address blocks for two minutes and leaves the list of peers
		// unusable.
		if err := c.cfg.Machine.Dial(ctx, s.Targets[1]); err != nil {
			return fmt.Errorf("reach glusterd of %s: %w", s.Targets[0], waiting{err})
		}
		return c.client.Change(ctx, s.Command...)
	case WaitPeers:
		return c.pollUntil(ctx, s, progress, c.cfg.RetryFor,
			func() (bool, string) { return c.peersSettled(ctx, d, s.Targets) })
	case WaitHeal:
		return c.waitHeal(ctx, d, s, progress)
	case Mount:
		if c.cfg.Mounter == nil {
			return errors.New("no mounter is configured")
		}
		return c.cfg.Mounter.Mount(ctx)
	case MakeLayout:
		return c.makeLayout(ctx, d)
	case Record:
		if err := c.settleNames(ctx, d, s, progress); err != nil {
			return err
		}
		return c.client.Change(ctx, s.Command...)
	case Create, AddBrick, ReplaceBrick:
		err := c.client.Change(ctx, s.Command...)
		if err != nil && cli.KindOf(err) == cli.BrickInUse && c.clearLeftover(ctx, d, s) {
			err = c.client.Change(ctx, s.Command...)
		}
		return err
	default:
		return c.client.Change(ctx, s.Command...)
	}
}

// waiting marks an error as temporary: it matches command.ErrTimeout.
type waiting struct{ error }

func (w waiting) Unwrap() []error { return []error{w.error, command.ErrTimeout} }

var errTakesLong = errors.New("it takes too long")

// pollUntil calls done repeatedly until done returns true or limit has passed. done also returns a
// text that says what is missing; the error contains the last such text.
func (c *Controller) pollUntil(
	ctx context.Context,
	s Step,
	progress func(Event),
	limit time.Duration,
	done func() (bool, string),
) error {
	start, last := c.cfg.Clock.Now(), ""
	for {
		ok, text := done()
		if ok {
			return nil
		}

		if text != last {
			progress(Event{s, "wait", text})
			last = text
		}

		if c.cfg.Clock.Now().Sub(start) > limit {
			return fmt.Errorf("%w (%v): %s", errTakesLong, limit, text)
		}

		if err := c.cfg.Clock.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

func (c *Controller) startDaemon(ctx context.Context, s Step, progress func(Event)) error {
	if err := c.cfg.Machine.StartDaemon(ctx); err != nil {
		return fmt.Errorf("start glusterd: %w", err)
	}
	// glusterd answers 2 to 17 s after its start, and later than that without quorum.
	return c.pollUntil(ctx, s, progress, time.Minute, func() (bool, string) {
		_, err := c.client.PoolList(ctx)
		if err != nil && cli.KindOf(err) != cli.PoolUnknown {
			return false, err.Error()
		}
		return true, ""
	})
}

func (c *Controller) peersSettled(ctx context.Context, d Desired, names []string) (bool, string) {
	o, err := c.ObserveQuick(ctx, d)
	if err != nil {
		return false, err.Error()
	}
	if o.PoolError != "" || o.Daemon != "" {
		return false, o.PoolError + o.Daemon
	}

	for _, m := range d.others() {
		if !slices.Contains(names, m.Name) {
			continue
		}
		p, ok := o.peerNamed(m.Name, m.Address)
		if !ok || p.State != cli.PeerInCluster || !p.Connected {
			return false, m.Name + " is not a full member yet"
		}
	}

	if len(o.Unsure) > 0 {
		return false, strings.Join(o.Unsure, ", ") + " do(es) not count all others as members yet"
	}

	return true, ""
}

// waitHeal starts healing and watches it. It returns an error if there is no progress for HealFor,
// if a brick stops, or at a split-brain.
func (c *Controller) waitHeal(ctx context.Context, d Desired, s Step, progress func(Event)) error {
	best := -1
	since := c.cfg.Clock.Now()
	last := ""
	for i := 0; ; i++ {
		if i%20 == 1 { // not in the first round: usually the volume heals by itself
			// glusterd refuses the command while a self-heal daemon does not run.
			_ = c.client.Change(ctx, "volume", "heal", d.Volume)
		}

		if i%10 == 9 { // healing takes long: copies may hold different files of one name
			c.settle(ctx, d, s.Targets)
		}

		hs, err := c.client.HealSummary(ctx, d.Volume)
		text := ""
		if err != nil {
			text = err.Error()
		} else {
			o := Observation{
				Volume: &cli.Volume{Replica: len(s.Targets), Bricks: make([]cli.Brick, len(s.Targets))},
				Heal:   hs,
			}

			h := o.HealState()
			switch {
			case h.SplitBrain.N > 0:
				return fmt.Errorf("%d entries are in split-brain", h.SplitBrain.N)
			case h.Pending.Zero():
				return nil
			case len(h.Away) > 0:
				text = strings.Join(h.Away, ", ") + " cannot be asked"
			case !h.Pending.Known:
				text = "it is not known what is to be healed"
			default:
				text = fmt.Sprintf("%d entries are to be healed", h.Pending.N)
				if best < 0 || h.Pending.N < best {
					best, since = h.Pending.N, c.cfg.Clock.Now()
				}
			}
		}

		if text != last {
			progress(Event{s, "wait", text})
			last = text
		}

		waited := c.cfg.Clock.Now().Sub(since)
		if best < 0 && waited > c.cfg.RetryFor || waited > c.cfg.HealFor {
			return fmt.Errorf("%w (%v without progress): %s", errTakesLong, waited.Round(time.Second), text)
		}

		if err := c.cfg.Clock.Sleep(ctx, 1500*time.Millisecond); err != nil {
			return err
		}
	}
}

// clearLeftover removes a volume's mark from an empty brick directory of this node that no volume
// lists. A failed creation of the volume leaves such a mark. clearLeftover first observes the
// state, because the mark may belong to a change that another node is making. It reports whether it
// removed the mark.
func (c *Controller) clearLeftover(ctx context.Context, d Desired, s Step) bool {
	self := d.selfMember()
	if !slices.Contains(s.Targets, self.BrickName()) || self.Brick == "" {
		return false
	}

	obs, err := c.ObserveQuick(ctx, d)
	if err != nil || obs.Daemon != "" || obs.VolumeError != "" || len(obs.Others) > 0 {
		return false
	}

	if obs.Volume != nil {
		for _, b := range obs.Volume.Bricks {
			if _, path, _ := cli.SplitBrick(b.Name); path == self.Brick &&
				(b.HostUUID == "" || b.HostUUID == obs.selfUUID()) {
				return false
			}
		}
	}

	if err := c.cfg.Machine.ClearBrick(ctx, self.Brick); err != nil {
		c.cfg.Log.Warn("brick directory cannot be used again", "path", self.Brick, "error", err)
		return false
	}

	c.cfg.Log.Info("brick directory was cleared of a mark that was left behind", "path", self.Brick)
	return true
}

// makeLayout creates the tree in a child, since the volume may hang.
func (c *Controller) makeLayout(ctx context.Context, d Desired) error {
	if c.cfg.Tree == nil || len(c.cfg.Helper) == 0 {
		return errNoHelper
	}

	var nodes []string
	for _, m := range d.Members {
		nodes = append(nodes, m.Name)
	}

	spec, err := json.Marshal(layoutSpec{Root: d.Mount, Volume: d.Volume, Tree: c.cfg.Tree(nodes)})
	if err != nil {
		return fmt.Errorf("make the directories of the volume: %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if _, err := command.Do(ctx, c.cfg.Runner, append(slices.Clone(c.cfg.Helper), "layout", string(spec))...); err != nil {
		return fmt.Errorf("make the directories of the volume: %w", err)
	}

	return nil
}
