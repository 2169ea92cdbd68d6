package lbproxy

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"time"

	"github.com/hashicorp/go-multierror"
	"go.yaml.in/yaml/v3"

	"saltern/internal/onedoc"
)

// maxConfigSize bounds a configuration file in bytes, before it is parsed.
const maxConfigSize = 1 << 20

// maxBackends is the number of bits in a session's set of tried members.
const maxBackends = 64

var nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$`)

// LoadConfig reads a YAML or JSON file. Unknown keys are errors. The error is a *multierror.Error
// with all faults of the file.
func LoadConfig(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("open the load balancer's configuration: %w", err)
	}
	defer f.Close()

	b, err := io.ReadAll(io.LimitReader(f, maxConfigSize+1))
	if err != nil {
		return Config{}, fmt.Errorf("read the load balancer's configuration: %w", err)
	}

	cfg, err := ParseConfig(b)
	if err != nil {
		return Config{}, fmt.Errorf("load balancer's configuration %s: %w", path, err)
	}

	return cfg, nil
}

// ParseConfig parses and validates the text of a configuration, see [LoadConfig].
func ParseConfig(b []byte) (cfg Config, err error) {
	if len(b) > maxConfigSize {
		return cfg, fmt.Errorf("larger than %d bytes", maxConfigSize)
	}

	var all *multierror.Error
	if err := onedoc.DecodeKnown(b, &cfg); err != nil {
		var te *yaml.TypeError
		if !errors.As(err, &te) {
			return cfg, err
		}
		for _, s := range te.Errors {
			all = multierror.Append(all, errors.New(s))
		}
	}

	if err := cfg.Validate(); err != nil {
		all = multierror.Append(all, err)
	}

	return cfg, all.ErrorOrNil()
}

func setDefault[T int | int64 | uint32 | float64 | time.Duration](p *T, v T) {
	if *p == 0 {
		*p = v
	}
}

// Validate sets the defaults. It returns all faults as one *multierror.Error, or nil.
func (c *Config) Validate() error {
	c.setDefaults()
	var all *multierror.Error
	bad := func(format string, a ...any) { all = multierror.Append(all, fmt.Errorf(format, a...)) }

	if len(c.Frontends) == 0 {
		bad("frontends: at least one is needed")
	}

	names, binds := map[string]bool{}, map[netip.AddrPort]string{}
	for i := range c.Frontends {
		c.Frontends[i].checkFrontend(fmt.Sprintf("frontends[%d]", i), names, binds, bad)
	}

	names = map[string]bool{}
	if len(c.Backends) > maxBackends {
		bad("backends: %d given, at most %d", len(c.Backends), maxBackends)
	}

	for i := range c.Backends {
		b := &c.Backends[i]
		at := fmt.Sprintf("backends[%d]", i)
		for _, err := range b.faults() {
			bad("%s: %w", at, err)
		}

		if names[b.Name] {
			bad("%s: name %q is used twice", at, b.Name)
		}

		names[b.Name] = true
	}

	c.checkRest(bad)
	return all.ErrorOrNil()
}

func (c *Config) setDefaults() {
	for i := range c.Frontends {
		f := &c.Frontends[i]
		f.Balance = cmp.Or(f.Balance, leastConn)
		if f.Mode == Request {
			setDefault(&f.Idle, time.Hour)
		}

		if f.Mode != API {
			setDefault(&f.Outstanding, 15*time.Minute)
		}

		setDefault(&f.HalfClosed, 5*time.Minute)
		setDefault(&f.Stall, time.Minute)
		if f.Rate > 0 {
			setDefault(&f.Burst, 10*f.Rate)
		}
	}

	for i := range c.Backends {
		c.Backends[i].setDefaults()
	}

	setDefault(&c.Limits.Pending, 64<<20)
	setDefault(&c.Limits.Backlog, 4096)
	setDefault(&c.Connect.Timeout, 2*time.Second)
	setDefault(&c.Connect.Hedge, 250*time.Millisecond)
	setDefault(&c.Connect.Header, 3*time.Second)
	h := &c.Health
	h.Check = cmp.Or(h.Check, CheckPing)

	if h.checksSalt() {
		setDefault(&c.Connect.Handshake, 30*time.Second)
		setDefault(&c.Connect.Unproven, 5*time.Minute)
	}

	setDefault(&h.Inter, time.Second)
	setDefault(&h.FastInter, 250*time.Millisecond)
	setDefault(&h.DownInter, time.Second)
	setDefault(&h.Rise, 2)
	setDefault(&h.Fall, 2)
	setDefault(&h.Timeout, time.Second)
	setDefault(&h.Silence, 30*time.Second)
	setDefault(&h.SlowStart, 20*time.Second)
	r := &c.Rebalance
	setDefault(&r.Delay, 5*time.Second)
	setDefault(&r.Excess, 0.10)
	setDefault(&r.Rate, 0.01)
	setDefault(&r.Quiet, time.Second)
	setDefault(&c.Move.Request, 1<<20)
	setDefault(&c.Move.Total, 64<<20)
	k := &c.Keepalive
	setDefault(&k.Idle, time.Minute)
	setDefault(&k.Interval, 15*time.Second)
	setDefault(&k.Count, 3)
	setDefault(&k.UserTimeout, 90*time.Second)
	c.Log.Sessions = cmp.Or(c.Log.Sessions, "all")
	setDefault(&c.Admin.Mode, 0o600)
	setDefault(&c.Loops, 1)
	setDefault(&c.MaxLoops, max(c.Loops, min(4, runtime.NumCPU())))
	setDefault(&c.Stop, 5*time.Second)
}

// checksSalt reports whether the backends are checked as masters of Salt.
func (h *Health) checksSalt() bool { return h.Check == CheckReady || h.Check == CheckPing }

func (f *Frontend) checkFrontend(
	at string,
	names map[string]bool,
	binds map[netip.AddrPort]string,
	bad func(string, ...any),
) {
	if !nameRE.MatchString(f.Name) {
		bad("%s: name %q is not a plain word", at, f.Name)
	}

	if names[f.Name] {
		bad("%s: name %q is used twice", at, f.Name)
	}

	names[f.Name] = true
	if f.Mode != Publish && f.Mode != Request && f.Mode != API {
		bad("%s: mode %q is none of publish, request, api", at, f.Mode)
	}

	if f.Balance != leastConn && f.Balance != roundRobin && f.Balance != bySource {
		bad("%s: balance %q is none of leastconn, roundrobin, source", at, f.Balance)
	}

	if len(f.Bind) == 0 {
		bad("%s: bind: at least one address is needed", at)
	}

	for _, s := range f.Bind {
		ap, err := netip.ParseAddrPort(s)
		if err != nil {
			bad("%s: bind %q: %w", at, s, err)
			continue
		}

		if other, ok := binds[ap]; ok && ap.Port() != 0 {
			bad("%s: bind %q is already used by %s", at, s, other)
		}

		binds[ap] = at
	}

	if f.Mode == Publish && f.Idle > 0 {
		bad("%s: idle: a publish frontend must not have an idle limit", at)
	}

	if f.HalfClosed < 0 || f.Stall < 0 {
		bad("%s: half_closed and stall must be positive", at)
	}

	if f.MaxSessions < 0 || f.MaxPerSource < -1 || f.Rate < 0 && f.Rate != -1 || f.Burst < 0 {
		bad("%s: limits must not be negative (max_per_source and rate may be -1: none)", at)
	}

	for _, list := range []struct {
		name string
		p    []netip.Prefix
	}{{"allow", f.Allow}, {"deny", f.Deny}, {"proxy_from", f.ProxyFrom}} {
		for _, p := range list.p {
			if !p.IsValid() {
				bad("%s: %s has an invalid prefix", at, list.name)
			}
		}
	}
}

func (b *Backend) setDefaults() {
	setDefault(&b.Weight, 100)
	setDefault(&b.PublishPort, 4505)
	setDefault(&b.RequestPort, 4506)
	setDefault(&b.APIPort, 8000)
}

func (b *Backend) portFor(m Mode) int {
	switch m {
	case Publish:
		return b.PublishPort
	case Request:
		return b.RequestPort
	}
	return b.APIPort
}

func (b *Backend) faults() (errs []error) {
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if !nameRE.MatchString(b.Name) {
		bad("name %q is not a plain word", b.Name)
	}

	if _, err := netip.ParseAddr(b.Address); err != nil {
		bad("address %q is not an IP address", b.Address)
	}

	if b.Weight < 1 || b.Weight > 1000 {
		bad("weight %d is not within 1 to 1000", b.Weight)
	}

	for _, m := range []Mode{Publish, Request, API} {
		if p := b.portFor(m); p < 1 || p > 65535 {
			bad("%s_port %d is not within 1 to 65535", m, p)
		}
	}

	if b.MaxSessions < 0 {
		bad("max_sessions must not be negative")
	}

	return errs
}

func (c *Config) checkRest(bad func(string, ...any)) {
	positive := func(name string, d time.Duration) {
		if d <= 0 {
			bad("%s must be positive", name)
		}
	}

	positive("connect.timeout", c.Connect.Timeout)
	positive("connect.header", c.Connect.Header)
	h := &c.Health
	switch h.Check {
	case CheckTCP, CheckReady, CheckPing:
	case CheckExchange:
		if h.Send == "" || h.Expect == "" || len(h.Expect) > 4096 {
			bad("health: the exchange check needs send and expect (at most 4096 bytes)")
		}
	default:
		bad("health: check %q is none of tcp, ready, ping, exchange", h.Check)
	}

	positive("health.inter", h.Inter)
	positive("health.fastinter", h.FastInter)
	positive("health.downinter", h.DownInter)
	positive("health.timeout", h.Timeout)
	positive("health.silence", h.Silence)

	if h.Rise < 1 || h.Fall < 1 {
		bad("health: rise and fall must be at least 1")
	}

	r := &c.Rebalance
	if r.Excess < 0 || r.Rate < 0 || r.Rate > 1 || r.Delay < 0 || r.Quiet < 0 {
		bad("rebalance: values must not be negative, rate at most 1")
	}

	if c.Move.Request < maxPrelude || c.Move.Total < int64(c.Move.Request) {
		bad("move: request at least %d, total at least request", maxPrelude)
	}

	k := &c.Keepalive
	if k.Idle < time.Second || k.Interval < time.Second || k.Count < 1 || k.Count > 127 || k.UserTimeout < 0 {
		bad("keepalive: idle and interval at least 1s, count 1 to 127")
	}

	switch c.Log.Sessions {
	case "all", "publish", "none":
	default:
		bad("log: sessions %q is none of all, publish, none", c.Log.Sessions)
	}

	if c.Limits.Pending < 2*bufSize || c.Limits.Backlog < 1 || c.Limits.Descriptors < 0 {
		bad("limits: pending at least %d, backlog at least 1, descriptors not negative", 2*bufSize)
	}

	if c.Limits.Descriptors > 0 && c.Limits.Descriptors < reservedFDs+2 {
		bad("limits: descriptors must be at least %d", reservedFDs+2)
	}

	if c.Loops < 1 || c.Loops > 64 || c.MaxLoops < c.Loops || c.MaxLoops > 64 {
		bad("loops must be 1 to 64 and max_loops not below it")
	}

	positive("stop", c.Stop)
	if c.Admin.Mode > 0o777 {
		bad("admin: mode %#o is not a permission", c.Admin.Mode)
	}

	if m := c.Admin.Metrics; m != "" {
		ap, err := netip.ParseAddrPort(m)
		if err != nil {
			bad("admin: metrics %q: %w", m, err)
		} else if !ap.Addr().IsLoopback() && !c.Admin.MetricsPublic {
			bad("admin: metrics %q is not a loopback address (set metrics_public to allow it)", m)
		}
	}
}
