package life

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"saltern/command"
	"saltern/control"
	"saltern/pause"
	"saltern/printable"
	"saltern/supervisor/firewall"
	"saltern/supervisor/internal/member"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/layout"
	"saltern/supervisor/status"
)

// saltAPI is this node's salt-api. It is a client of the master's, on whose event bus
// it speaks, and runs as the master's user, with the master's configuration. What is
// wrong with it keeps nobody else from serving.
type saltAPI struct {
	*children
	master  *master
	member  *member.Member // nil: this node is alone
	restart func() error   // of the service
	proc    *service.Process
	lone    lone // looks at the shared storage

	at    atomic.Pointer[served]
	began string // the mark of the options that it has; between Prepare and Run
}

// served is where it is served.
type served struct {
	at      *url.URL
	console string // the address of its console; "": there is none
}

const (
	// apiOOM is above the master's: programs that ask are sent away before minions are.
	apiOOM = 300
	// apiMemory is what it may take of the machine's memory, in percent.
	apiMemory = 25
	apiLook   = time.Second     // at the options
	apiCheck  = 5 * time.Second // whether it answers
	// apiCerts and apiOpens are how many looks there are between two at the
	// certificate, and at the firewall, whose rules somebody may have loaded anew.
	apiCerts = 10
	apiOpens = 60
)

// program lies beside our own executable.
func (a *saltAPI) program() string { return filepath.Join(filepath.Dir(a.Executable), "salt-api") }

// spec is its service, which waits for the master and for what is given.
func (a *saltAPI) spec(wait service.Condition) service.Spec {
	out := a.output(status.APIService)
	a.proc = &service.Process{Path: a.program(), Env: childEnv(), Dir: "/",
		Args:    []string{"-c", a.Settings.MasterConf(), "--log-file-level", "quiet", "--pid-file", filepath.Join(a.Settings.MasterSockDir(), "salt-api.pid")},
		PIDFile: pidFile(a.Settings, status.APIService), Credential: a.children.master.Credential, StopTimeout: a.Settings.Limits.StopTimeout, Log: out,
		Confine: func(ctx context.Context, pid int) { a.confine(ctx, status.APIService, pid, apiOOM, apiMemory) }}
	return service.Spec{
		Name:   status.APIService,
		After:  []string{status.MasterService},
		Output: out,
		Runner: a,
		Wait:   wait,
		Prepare: func(ctx context.Context) error {
			err := a.prepare(ctx)
			if err != nil {
				err = blockers{{Code: status.APIDown, Cause: err.Error()}}
			}
			return a.block(status.APIService, err)
		},
		Health: &service.Health{Interval: apiCheck, Fall: 3, Check: a.answers},
	}
}

// prepare makes what it needs, and finds out where it will be served.
func (a *saltAPI) prepare(ctx context.Context) error {
	if err := a.accountThere("salt-api", a.Settings.Users.Master, a.children.master); err != nil {
		return err
	}
	if err := a.proc.KillStale(ctx); err != nil {
		return err
	}
	if found := blockers(programFindings(a.program())); len(found) > 0 {
		return found
	}
	if err := a.rejoin(ctx); err != nil {
		return err
	}
	if err := a.renew(ctx); err != nil {
		return err
	}
	a.began = a.mark()
	there, why := a.look(ctx, a.Settings.MasterConf())
	if why != "" {
		return errors.New(why)
	}
	if _, err := netip.ParseAddrPort(there.at.Host); err == nil {
		if found := blockers(portFindings(there.at.Host)); len(found) > 0 {
			return found
		}
	}
	a.at.Store(&there)
	return nil
}

// mark stands for the options that the master was last configured with, and for the
// certificate.
func (a *saltAPI) mark() string {
	c := a.master.choice
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.options.Mark + " " + layout.Signature(a.Settings.APICert())
}

// look asks salt-api what it has against a folder of configuration, as the account
// that it runs as, and where it would be served.
func (a *saltAPI) look(ctx context.Context, dir string) (there served, why string) {
	if err := a.renew(ctx); err != nil {
		return there, err.Error()
	}
	run := command.Exec{Limit: checkTakes, MaxOutput: 64 << 10, Cut: true, Env: childEnv(), Credential: a.children.master.Credential}
	out, err := run.Run(ctx, []string{a.program(), "--check", "-c", dir})
	if err != nil {
		return there, "salt-api --check: " + err.Error()
	}
	if out.Exit != 0 {
		_, text, _ := strings.Cut(string(out.Stderr), "cannot be used:\n")
		if text == "" {
			text = string(out.Stderr)
		}
		return there, "salt-api: " + status.Clip(printable.Brief(strings.TrimSpace(text), 500))
	}
	for line := range strings.Lines(string(out.Stdout)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), control.APIServedOn); ok {
			if u, err := url.Parse(text); err == nil && u.Port() != "" {
				there.at = u
			}
		}
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), control.ConsoleServedOn); ok {
			there.console = status.Clip(text)
		}
	}
	if there.at == nil {
		return there, "salt-api --check does not say where it is served"
	}
	return there, ""
}

// console is the address of the console, which may be 0.0.0.0 for all; "": there is none.
func (a *saltAPI) console() string {
	if there := a.at.Load(); there != nil {
		return there.console
	}
	return ""
}

// Run implements [service.Runner].
func (a *saltAPI) Run(ctx context.Context, started func(pid int)) error {
	own, stop := context.WithCancel(ctx)
	followed := make(chan struct{})
	began := a.began
	go func() {
		defer close(followed)
		a.follow(own, began)
	}()
	err := a.proc.Run(ctx, started)
	stop()
	<-followed
	return err
}

// follow has a new start made for new options and a new certificate, and keeps the
// system's firewall open until ctx ends.
func (a *saltAPI) follow(ctx context.Context, began string) {
	defer func() {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		a.open(short, 0)
	}()
	last := ""
	for round := 0; ; round++ {
		if round%apiOpens == 0 {
			a.open(ctx, port(a.at.Load().at))
		}
		if pause.For(ctx, apiLook) != nil {
			return
		}
		if round%apiCerts == 0 {
			last = a.renewed(ctx, last)
		}
		if a.mark() == began || ctx.Err() != nil {
			continue
		}
		a.Log.Info("salt-api is restarted to take new options or a new certificate")
		if err := a.restart(); err != nil {
			a.Log.Error("restart salt-api", "error", err)
		}
		return
	}
}

// renewed renews the certificate, and logs a fault that is not the last one.
func (a *saltAPI) renewed(ctx context.Context, last string) (fault string) {
	err := a.renew(ctx)
	if err == nil || ctx.Err() != nil {
		return ""
	}
	if err.Error() != last {
		a.Log.Warn("the certificate of Salt's API is not renewed", "error", err)
	}
	return err.Error()
}

// open has the system's firewall, if it is ours, let a port through; 0: none.
func (a *saltAPI) open(ctx context.Context, port uint16) {
	if !firewall.There(ctx) {
		return
	}
	if err := firewall.Open(ctx, port); err != nil && ctx.Err() == nil {
		a.Log.Warn("firewall: the port of Salt's API", "error", err)
	}
}

func port(u *url.URL) uint16 {
	n, err := net.LookupPort("tcp", u.Port()) // a number, always
	if err != nil {
		return 0
	}
	return uint16(n)
}

// answers reports whether it answers at all: who may ask, and what, is its own
// business.
func (a *saltAPI) answers(ctx context.Context) error {
	u := *a.at.Load().at
	if ap, err := netip.ParseAddrPort(u.Host); err == nil && ap.Addr().IsUnspecified() {
		own := netip.IPv6Loopback()
		if ap.Addr().Is4() {
			own = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		u.Host = netip.AddrPortFrom(own, ap.Port()).String()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Errorf("ask salt-api: %w", err)
	}
	// Its certificate is for others; nothing is told to it, and any answer will do.
	tr := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	res, err := tr.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("salt-api to answer on %s: %w", u.Host, err)
	}
	return res.Body.Close()
}
