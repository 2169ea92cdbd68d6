package life

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"saltern/internal/pause"
	"saltern/internal/printable"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/layout"
	"saltern/supervisor/options"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// choice is which of the administrator's options this node's master has. Options
// with which it has not served yet are on trial: when it ends or does not serve in
// time, they are refused, and it starts with those with which it last served. They
// stay refused over restarts, until they change or somebody asks for them.
type choice struct {
	env     child.Env
	account layout.Account // of the master
	service masterService
	// counted reports whether the load balancer counts the master up.
	counted func(context.Context) bool

	stir chan struct{} // capacity 1: there is something to decide

	mu      sync.Mutex
	refused layout.Refusal // also on disk
	options layout.Options // with which the master was configured; no Mark: not known
	began   time.Time      // of the start with them
	since   time.Time      // it serves without a break; zero: it does not
	waits   bool           // it has not served with them yet
	trial   bool           // there are others to go back to
	asked   string         // the mark that somebody wants tried; empty: nobody
	end     time.Time      // of the trial that was asked for
	limit   time.Duration  // as it was asked for
}

const (
	trialTakes = 3 * time.Minute // for a start that nobody asked for
	trialLook  = 250 * time.Millisecond
	// trialHolds is how long a master serves before its options count as good.
	trialHolds = 2 * time.Second
)

// masterService is the service that runs the master: [service.Named].
type masterService interface {
	Info() service.Info
	Restart() error
}

func newChoice(
	env child.Env,
	account layout.Account,
	service masterService,
	counted func(context.Context) bool,
) *choice {
	r, err := layout.Refused(env.Settings)
	if err != nil { // they are tried then
		env.Log.Warn("it is not known which options are refused", "error", err)
	}
	return &choice{
		env:     env,
		account: account,
		service: service,
		counted: counted,
		stir:    make(chan struct{}, 1),
		refused: r,
	}
}

// fresh gives this node's settings with the master's options as appliance.yaml has
// them now. A file that is wrong does not count.
func (c *choice) fresh() *settings.Settings {
	s := *c.env.Settings
	if now, err := settings.Load(c.env.ConfigPath, s.Node); err == nil {
		s.Master.Options, s.AllowInsecure = now.Master.Options, now.AllowInsecure
	}
	return &s
}

// with gives settings with other options of appliance.yaml.
func (c *choice) with(s *settings.Settings, o layout.Options) *settings.Settings {
	out := *s
	out.Master.Options, out.AllowInsecure = o.Own, c.fresh().AllowInsecure
	return &out
}

// now gives the options of now, and why they are refused; empty: they are not.
func (c *choice) now() (o layout.Options, refused string) {
	s := c.fresh()
	o, err := layout.UserOptions(s, s.Master.Options)
	if err != nil { // the master's own check says it better
		o.Mark = ""
		return o, ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused.Mark == o.Mark {
		return o, c.refused.Why
	}
	return o, ""
}

// Mark stands for the options with which the master was configured last.
func (c *choice) Mark() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.options.Mark
}

// Restart restarts the master. It implements [member.MasterService].
func (c *choice) Restart() error { return c.service.Restart() }

// restart restarts the master, whose service is there where options are tried.
func (c *choice) restart() { _ = c.service.Restart() }

// OldKey reports whether the master was started with another key of the cluster than its
// storage has now.
func (c *choice) OldKey() bool {
	o, _ := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return o.Key != "" && c.options.Key != "" && o.Key != c.options.Key
}

// setRefused remembers which options are refused, over restarts as well; the zero
// value: none.
func (c *choice) setRefused(r layout.Refusal) {
	c.mu.Lock()
	c.refused = r
	c.mu.Unlock()
	if err := layout.Refuse(c.env.Settings, r); err != nil { // it holds until the end of this life
		c.env.Log.Error("which options of the master are refused is not kept", "error", err)
	}
}

// begin notes that the master is about to start with options; trial: there are
// others to go back to.
func (c *choice) begin(o layout.Options, trial bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.options, c.trial = o, trial
	c.began = c.env.Now()
	c.since = time.Time{}
	c.waits = o.Mark != ""
	if c.asked != o.Mark {
		c.asked = ""
	}
	c.decide()
}

// underway returns the mark of the options with which the master was configured, and
// whether a trial of them or of others is under way.
func (c *choice) underway() (mark string, trying bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.options.Mark, c.asked != "" || c.waits && c.trial
}

// ask notes that somebody wants the options of mark tried. It reports whether that was so
// before, and fails while others are tried.
func (c *choice) ask(mark string, limit time.Duration) (again bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked != "" && c.asked != mark || c.asked == "" && c.waits && c.trial {
		return false, options.ErrTrying
	}

	again = c.asked == mark
	c.asked = mark
	c.limit = limit
	c.end = c.env.Now().Add(limit)
	c.decide()
	return again, nil
}

// withdraw takes back what [choice.ask] has noted.
func (c *choice) withdraw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = ""
}

// abandon ends a trial that is under way, whatever came of it.
func (c *choice) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked, c.waits = "", false
}

// decide has run look at what has been noted.
func (c *choice) decide() {
	select {
	case c.stir <- struct{}{}:
	default:
	}
}

// verdict is what is to be done about a trial.
type verdict int

const (
	goOn verdict = iota
	isGood
	isBad
)

// judge decides about what waits, given whether the master serves; why is for isBad.
func (c *choice) judge(now time.Time, serves bool, message string) (v verdict, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !serves {
		c.since = time.Time{}
	} else if c.since.IsZero() {
		c.since = now
	}

	asked := c.asked != "" && c.asked == c.options.Mark
	switch {
	case c.waits && !c.since.IsZero() && now.Sub(c.since) >= trialHolds:
		c.waits = false
		if asked {
			c.asked = ""
		}
		return isGood, ""
	case c.asked != "" && now.After(c.end): // also when it was not even begun
		return isBad, fmt.Sprintf("salt-master did not serve within %s: %s", c.limit, message)
	case c.waits && c.trial && !asked && now.Sub(c.began) > trialTakes:
		return isBad, fmt.Sprintf("salt-master did not serve within %s: %s", trialTakes, message)
	}

	return goOn, ""
}

// run decides about trials until ctx ends.
func (c *choice) run(ctx context.Context) {
	for {
		c.mu.Lock()
		idle := !c.waits && c.asked == ""
		c.mu.Unlock()

		if idle {
			select {
			case <-c.stir:
			case <-ctx.Done():
				return
			}
		}

		if pause.For(ctx, trialLook) != nil {
			return
		}

		info := c.service.Info()
		switch v, why := c.judge(c.env.Now(), c.serves(ctx, info), info.Message); v {
		case isGood:
			c.keep()
		case isBad:
			c.refuse(why)
		}
	}
}

// serves reports whether the master answers, and minions are given to it.
func (c *choice) serves(ctx context.Context, info service.Info) bool {
	if info.State != service.Running {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return c.counted(ctx)
}

// keep keeps the options of the master that serves for a start with broken ones.
func (c *choice) keep() {
	c.mu.Lock()
	o := c.options
	c.mu.Unlock()

	good, err := layout.GoodOptions(c.env.Settings)
	if err == nil && good.Mark == o.Mark && good.Dir == o.Dir {
		return // it went back to them
	}

	if now, refused := c.now(); now.Mark != o.Mark || refused != "" {
		return // they have changed since: the next start will show
	}

	if err := layout.KeepGood(c.env.Settings, o, c.account); err != nil { // a full disk keeps no master from serving
		c.env.Log.Warn("the master's options of now are not kept for a start with broken ones", "error", err)
	}

	c.setRefused(layout.Refusal{})
}

// refuse has the master go back to its last good options.
func (c *choice) refuse(why string) {
	c.mu.Lock()
	mark := cmp.Or(c.asked, c.options.Mark)
	c.asked, c.waits = "", false
	c.mu.Unlock()
	c.env.Log.Error("salt-master does not serve with its new options; it goes back to its last good ones", "reason", why)
	c.setRefused(layout.Refusal{Mark: mark, Why: printable.Brief(why, 500)})
	c.restart()
}

// ended is told when the master ended by itself, with the last that it wrote.
func (c *choice) ended(err error, last []string) {
	c.mu.Lock()
	bad := c.waits && c.trial
	c.mu.Unlock()

	if !bad {
		return
	}

	why := "salt-master ended before it served"
	if err != nil {
		why += " (" + err.Error() + ")"
	}

	if len(last) > 0 {
		why += ": " + last[len(last)-1]
	}

	c.refuse(why)
}

// forget has options tried that were refused: somebody restarts the master by hand.
func (c *choice) forget() { c.setRefused(layout.Refusal{}) }

// services are those of the manager. A master that is restarted by hand tries
// options that were refused.
type services struct {
	*service.Manager
	choice *choice
}

// Restart restarts a service.
func (s services) Restart(name string) error {
	if name == status.MasterService {
		s.choice.forget()
	}
	return s.Manager.Restart(name)
}
