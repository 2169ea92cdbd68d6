// Package saltapi runs the salt-api of a node and issues its certificate.
package saltapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"saltern/internal/command"
	"saltern/internal/control"
	"saltern/internal/durable"
	"saltern/internal/pause"
	"saltern/internal/printable"
	"saltern/internal/proxyproto"
	"saltern/supervisor/firewall"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/internal/oneatatime"
	"saltern/supervisor/internal/probe"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// API is this node's salt-api. It is a client of the master, whose event bus it uses, and runs
// under the master's account, with the master's configuration. If salt-api fails, the master
// continues to serve.
type API struct {
	cfg     Config
	env     child.Env
	proc    *service.Process
	storage oneatatime.Runner // touches the shared storage

	at    atomic.Pointer[apiPlace]
	began string // signature of the files with which salt-api was started; set between Prepare and Run
}

// Config holds what an [API] uses.
type Config struct {
	Env      child.Env
	Programs *child.Programs
	Setup    *setup.Machine     // may be nil: the node was configured by hand
	Table    func() nodes.Table // returns the table of nodes; may be nil: this node has no cluster
	// Settings returns the node's settings, with the members of its cluster.
	Settings func() *settings.Settings
	// Options returns the mark of the options with which the master was last configured.
	Options func() string
	Service service.Named // the service that runs salt-api
}

// New returns the salt-api of a node. It starts nothing before its service runs.
func New(cfg Config) *API {
	return &API{cfg: cfg, env: cfg.Env, storage: oneatatime.New()}
}

// apiPlace is the address at which programs reach salt-api.
type apiPlace struct {
	*url.URL        // address for programs
	behind   string // address and port for the load balancers; "": they pass no requests on to salt-api
	console  string // address of the console; "": there is none
}

// listens returns the address and port at which salt-api itself listens.
func (p *apiPlace) listens() string { return cmp.Or(p.behind, p.Host) }

const (
	// apiOOM is higher than the master's value: when memory is short, the kernel kills salt-api
	// first.
	apiOOM = 300
	// apiMemory is salt-api's share of the machine's memory, in percent.
	apiMemory = 25
	// apiCerts and apiOpens are numbers of rounds of follow, which take about a second each. Every
	// apiCerts rounds follow checks the certificate. Every apiOpens rounds it checks the firewall,
	// whose rules an administrator may have reloaded.
	apiCerts = 10
	apiOpens = 60
)

// program returns the path of salt-api, which is beside this program.
func (a *API) program() string { return filepath.Join(filepath.Dir(a.env.Executable), "salt-api") }

// Spec returns the service that runs salt-api. Each start waits for the master and for the
// condition wait.
func (a *API) Spec(wait service.Condition) service.Spec {
	out := a.cfg.Programs.Output(status.APIService)
	a.proc = &service.Process{
		Path: a.program(),
		Env:  child.Environ(),
		Dir:  "/",
		Args: []string{"-c", a.env.Settings.MasterConf(), "--log-file-level", "quiet", "--pid-file",
			filepath.Join(a.env.Settings.MasterSockDir(), "salt-api.pid")},
		PIDFile:     child.PIDFile(a.env.Settings, status.APIService),
		Credential:  a.cfg.Programs.Master.Credential,
		StopTimeout: a.env.Settings.Limits.StopTimeout,
		Log:         out,
		Confine: func(ctx context.Context, pid int) error {
			return a.cfg.Programs.Confine(ctx, status.APIService, pid, apiOOM, apiMemory)
		},
		KillRest: func(pid int) { a.cfg.Programs.KillRest(status.APIService, pid) },
	}

	return service.Spec{
		Name:   status.APIService,
		After:  []string{status.MasterService},
		Output: out,
		Runner: a,
		Wait:   wait,
		Prepare: func(ctx context.Context) error {
			err := a.prepare(ctx)
			if err != nil {
				err = child.Blockers{{Code: status.APIDown, Cause: err.Error()}}
			}
			return a.cfg.Programs.Block(status.APIService, err)
		},
		Health: &service.Health{Interval: 5 * time.Second, Fall: 3, Check: a.answers},
	}
}

// prepare creates what salt-api needs, and finds out where it will listen.
func (a *API) prepare(ctx context.Context) error {
	if err := a.cfg.Programs.RequireAccount("salt-api", a.env.Settings.Users.Master, a.cfg.Programs.Master); err != nil {
		return err
	}

	if err := a.proc.KillStale(ctx); err != nil {
		return err
	}

	if found := child.Blockers(child.CheckProgram(a.program())); len(found) > 0 {
		return found
	}

	if err := a.rejoin(ctx); err != nil {
		return err
	}

	if err := a.renewCertificate(ctx); err != nil {
		return err
	}

	if err := a.nameBalancers(); err != nil {
		return err
	}

	a.began = a.signature()
	at, why := a.runCheck(ctx, a.env.Settings.MasterConf())
	if why != "" {
		return errors.New(why)
	}

	if _, err := netip.ParseAddrPort(at.listens()); err == nil {
		if found := child.Blockers(probe.PortFindings(at.listens())); len(found) > 0 {
			return found
		}
	}

	a.at.Store(at)
	return nil
}

// nameBalancers writes the file that tells salt-api from which load balancers it may accept the
// address of a client.
func (a *API) nameBalancers() error {
	if !a.env.Settings.APIBehind() {
		return nil
	}
	_, err := layout.WriteFile(a.env.Settings.APIBalancers(), layout.Balancers(a.cfg.Settings()), 0o644)
	return err
}

// writeMinionConf writes the file with the lines for minions, which salt-api shows, once the set-up
// knows these lines. A node that was configured by hand has no such file.
func (a *API) writeMinionConf() error {
	if a.cfg.Setup == nil {
		return nil
	}
	setUp := a.cfg.Setup.Progress().Done
	if setUp == nil || setUp.MinionConf == "" {
		return nil
	}
	_, err := layout.WriteFile(a.env.Settings.APIMinionConf(), []byte(setUp.MinionConf), 0o644)
	return err
}

// signature returns a text that changes with the options with which the master was last configured,
// and with the certificate.
func (a *API) signature() string {
	return a.cfg.Options() + " " + layout.Signature(a.env.Settings.APICert())
}

// runCheck starts salt-api, under its usual account, to check a configuration folder. at is the
// address at which salt-api would listen. If salt-api refuses the folder, at is nil and why is the
// reason.
func (a *API) runCheck(ctx context.Context, dir string) (at *apiPlace, why string) {
	if err := a.renewCertificate(ctx); err != nil {
		return nil, err.Error()
	}

	run := command.Exec{
		Limit:      child.CheckTakes,
		MaxOutput:  64 << 10,
		Cut:        true,
		Env:        child.Environ(),
		Credential: a.cfg.Programs.Master.Credential,
	}

	out, err := run.Run(ctx, []string{a.program(), "--check", "-c", dir})
	if err != nil {
		return nil, "salt-api --check: " + err.Error()
	}
	if out.Exit != 0 {
		_, text, _ := strings.Cut(string(out.Stderr), "cannot be used:\n")
		if text == "" {
			text = string(out.Stderr)
		}
		return nil, "salt-api: " + status.Clip(printable.Brief(strings.TrimSpace(text), 500))
	}

	at = &apiPlace{}
	for line := range strings.Lines(string(out.Stdout)) {
		line = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(line, control.APIServedOn); ok {
			if u, err := url.Parse(text); err == nil && u.Port() != "" {
				at.URL = u
			}
		}

		if text, ok := strings.CutPrefix(line, control.APIBehind); ok {
			at.behind = text
		}

		if text, ok := strings.CutPrefix(line, control.ConsoleServedOn); ok {
			at.console = status.Clip(text)
		}
	}

	if at.URL == nil {
		return nil, "salt-api --check does not say where it is served"
	}

	return at, ""
}

// Check returns why salt-api refuses a configuration folder, or "".
func (a *API) Check(ctx context.Context, dir string) (why string) {
	_, why = a.runCheck(ctx, dir)
	return why
}

// Console returns the address of the console, in which 0.0.0.0 stands for all addresses, or "" if
// there is none.
func (a *API) Console() string {
	if at := a.at.Load(); at != nil {
		return at.console
	}
	return ""
}

// Run implements [service.Runner].
func (a *API) Run(ctx context.Context, started func(pid int)) error {
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

// follow restarts salt-api when the master's options or the certificate change, and keeps the port
// open in the firewall until ctx ends.
func (a *API) follow(ctx context.Context, began string) {
	defer func() {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		a.OpenPort(short, 0)
	}()

	last := ""
	for round := 0; ; round++ {
		if round%apiOpens == 0 {
			a.OpenPort(ctx, port(a.at.Load().URL))
			if err := a.writeMinionConf(); err != nil {
				a.env.Log.Warn("salt-api does not serve the lines for minions, or old ones", "error", err)
			}
		}

		if pause.About(ctx, time.Second) != nil {
			return
		}

		if round%apiCerts == 0 {
			last = a.renewed(ctx, last)
		}

		if err := a.nameBalancers(); err != nil && round%apiOpens == 0 {
			a.env.Log.Warn("salt-api is not told of the load balancers", "error", err)
		}

		if a.signature() == began || ctx.Err() != nil {
			continue
		}

		a.env.Log.Info("salt-api is restarted to take new options or a new certificate")
		if err := a.cfg.Service.Restart(); err != nil {
			a.env.Log.Error("restart salt-api", "error", err)
		}

		return
	}
}

// renewed renews the certificate and returns why that failed, or "". It logs a fault unless the
// fault equals last.
func (a *API) renewed(ctx context.Context, last string) (fault string) {
	err := a.renewCertificate(ctx)
	if err == nil || ctx.Err() != nil {
		return ""
	}
	if err.Error() != last {
		a.env.Log.Warn("the certificate of Salt's API is not renewed", "error", err)
	}
	return err.Error()
}

// OpenPort opens a port in the appliance's firewall on this machine, and closes the port that it
// opened before. If port is 0, it only closes that port. On the image this process may not change
// the firewall; there OpenPort writes the port to a file for a service that may.
func (a *API) OpenPort(ctx context.Context, port uint16) {
	if firewall.ReadPort(a.env.Settings.DataDir) != port {
		if err := durable.Replace(filepath.Join(a.env.Settings.DataDir, firewall.PortFile),
			fmt.Appendln(nil, port), 0o600); err != nil {
			a.env.Log.Warn("firewall: the port of Salt's API", "error", err)
		}
		nodes.Mark(a.env.Settings.DataDir)
	}
	if !firewall.There(ctx) {
		return
	}
	if err := firewall.Open(ctx, port); err != nil && ctx.Err() == nil {
		a.env.Log.Warn("firewall: the port of Salt's API", "error", err)
	}
}

func port(u *url.URL) uint16 {
	n, err := net.LookupPort("tcp", u.Port()) // the port is always a number here
	if err != nil {
		return 0
	}
	return uint16(n)
}

// answers returns nil if salt-api answers at all. Any HTTP status counts, because salt-api itself
// decides who may send which request.
func (a *API) answers(ctx context.Context) error {
	at := a.at.Load()
	u := *at.URL
	u.Host = at.listens()
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

	// The certificate of salt-api does not name this address. That does not matter, because the
	// request has no secret and any answer will do.
	tr := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	if at.behind != "" {
		tr.DialContext = dialBehind
	}

	res, err := tr.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("salt-api to answer on %s: %w", u.Host, err)
	}

	return res.Body.Close()
}

// dialBehind connects as this node's load balancer does for its checks, with a PROXY header.
func dialBehind(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, proxyproto.Local); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("send PROXY header: %w", err)
	}
	return c, nil
}
