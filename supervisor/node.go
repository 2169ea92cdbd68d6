package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-multierror"

	"saltern/lbproxy"
	"saltern/supervisor/childlog"
	"saltern/supervisor/layout"
	"saltern/supervisor/probe"
	"saltern/supervisor/service"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
)

// The names of the services.
const (
	masterService = "master"
	lbService     = "lb"
)

// node is one configured node: its services and what is known about it.
type node struct {
	opt     Options
	cfg     *settings.Settings
	started time.Time
	manager *service.Manager
	logs    map[string]*childlog.Log
	events  *recorder
	master  layout.Account
	lb      layout.Account
	slow    *slowFacts
	clock   clock
	volume  *storage.Manager // nil: this node keeps no shared volume
	member  *member          // nil: this node is alone
	virtual *virtual         // nil: this node is alone
	setup   *setup.Machine   // nil in tests of a node by itself
	// balancer is the admin client of our own load balancer, backends what it
	// is to have.
	balancer *lbproxy.Client
	backends atomic.Pointer[[]lbproxy.Backend]

	mu        sync.Mutex
	blocked   map[string][]status.Finding // why a service is not started, by service
	insecure  []*layout.UserFault         // allowed insecure options
	unbounded map[string]string           // why a child has no bound on its memory
	isDown    bool                        // stopping
	board     *status.Board
	since     *time.Time // serving since
	answered  time.Time  // when the front last did
	served    bool       // was serving in this life
	ready     bool       // READY=1 was sent

	doc atomic.Pointer[status.Document]
}

func newNode(opt Options, cfg *settings.Settings, started time.Time, board *status.Board) (*node, error) {
	n := &node{opt: opt, cfg: cfg, started: started, board: board, events: newRecorder(cfg, opt.Log), logs: map[string]*childlog.Log{},
		blocked: map[string][]status.Finding{}, slow: newSlowFacts(cfg), balancer: lbproxy.NewClient(cfg.LBSocket())}
	var err error
	if n.master, err = layout.FindAccount(cfg.Users.Master); err != nil {
		return nil, err
	}
	if n.lb, err = layout.FindAccount(cfg.Users.LB); err != nil {
		return nil, err
	}
	n.volume = n.newVolume(cfg)
	if n.member, err = newMember(n); err != nil {
		return nil, err
	}
	specs := []service.Spec{n.masterSpec()}
	if cfg.LB.Enabled {
		lb := n.lbSpec()
		lb.Wait = n.belongs()
		specs = append(specs, lb)
	} else {
		n.lbProcess(nil).Stop() // of a life in which it was enabled
	}
	if n.member != nil {
		specs = append(specs, n.vipSpec())
	}
	if n.manager, err = service.NewManager(opt.Log, opt.Now, specs...); err != nil {
		return nil, err
	}
	d := n.compose(facts{})
	n.doc.Store(&d)
	return n, nil
}

func (n *node) close() {
	for _, l := range n.logs {
		l.Close()
	}
}

func (n *node) stopping() {
	n.mu.Lock()
	n.isDown = true
	n.mu.Unlock()
}

func (n *node) output(name string) *service.Lines {
	l := childlog.New(name, n.cfg.LogDir(), n.opt.Log, n.opt.Now)
	n.logs[name] = l
	return service.NewLines(l.Line)
}

// masterProgram lies beside our own executable unless the settings name it.
func (n *node) masterProgram() string {
	if n.cfg.Programs.Master != "" {
		return n.cfg.Programs.Master
	}
	return filepath.Join(filepath.Dir(n.opt.Executable), "salt-master")
}

func (n *node) pidFile(name string) string {
	return filepath.Join(n.cfg.RuntimeDir, name+".pid")
}

func (n *node) masterSpec() service.Spec {
	out := n.output(masterService)
	proc := &service.Process{Path: n.masterProgram(), Args: []string{"-c", n.cfg.MasterConf()}, Env: childEnv(), Dir: "/",
		PIDFile: n.pidFile(masterService), Credential: n.master.Credential, StopTimeout: n.cfg.Limits.StopTimeout, Log: out,
		Confine: func(ctx context.Context, pid int) {
			n.confine(ctx, masterService, pid, masterOOM, n.cfg.Limits.MasterMemory)
		}}
	return service.Spec{
		Name:   masterService,
		Output: out,
		Runner: proc,
		Wait:   n.storageReady(),
		Prepare: func(ctx context.Context) error {
			if err := n.accountThere("salt-master", n.cfg.Users.Master, n.master); err != nil {
				return n.block(masterService, err)
			}
			if err := proc.KillStale(ctx); err != nil {
				return n.block(masterService, err)
			}
			return n.block(masterService, n.prepareMaster())
		},
		Health: &service.Health{Interval: 2 * time.Second, Fall: 3, Check: func(ctx context.Context) error {
			if err := probe.Ping(ctx, n.cfg.MasterRequest()); err != nil {
				return fmt.Errorf("master to answer ping on %s: %w", n.cfg.MasterRequest(), err)
			}
			if err := probe.Subscribable(ctx, n.cfg.MasterPublish()); err != nil {
				return fmt.Errorf("master to accept subscribers on %s: %w", n.cfg.MasterPublish(), err)
			}
			return nil
		}, Hang: &service.Hang{
			Silent: func(err error) bool { return errors.Is(err, probe.ErrSilent) },
			Alive: func(since time.Time) bool {
				return n.slow.masterSpoke(pidOf(facts{services: n.manager.Services(0)}, masterService), since)
			},
		}},
	}
}

// accountThere refuses to run a child as root in the image because its account
// is missing. Elsewhere that is shown (SCA-502).
func (n *node) accountThere(child, name string, a layout.Account) error {
	if !a.Missing || !n.opt.InImage {
		return nil
	}
	return blockers{{Code: status.AccountMissing, Subject: child, Cause: "there is no account " + name + " on this machine"}}
}

// childEnv is the whole environment of a child: no notification socket, no
// credentials, nothing of ours.
func childEnv() []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	return []string{"PATH=" + path, "LANG=C.UTF-8", "HOME=/"}
}

// blockers is an error that carries the problems to show.
type blockers []status.Finding

func (b blockers) Error() string {
	var words []string
	for _, f := range b {
		words = append(words, f.Cause)
	}
	return strings.Join(words, "; ")
}

// block remembers why a service is not started, for the status.
func (n *node) block(name string, err error) error {
	var b blockers
	if err != nil && !errors.As(err, &b) {
		b = blockers{{Code: status.StorageUnusable, Subject: n.cfg.DataDir, Cause: err.Error()}}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.blocked[name] = b
	return err
}

func (n *node) prepareMaster() error {
	if err := layout.Make(n.cfg, n.master, n.lb); err != nil {
		return blockers{{Code: status.StorageUnusable, Subject: n.cfg.StorageDir(), Cause: settings.OneLine(err)}}
	}
	var b blockers
	var allowed []*layout.UserFault
	for _, f := range layout.CheckUserConf(n.cfg) {
		if f.Insecure && f.Allowed {
			allowed = append(allowed, f)
			continue
		}
		b = append(b, status.Finding{Code: status.MasterConfig, Subject: f.File + " " + f.Option, Cause: f.Error()})
	}
	n.mu.Lock()
	n.insecure = allowed
	n.mu.Unlock()
	b = append(b, keyFindings(layout.CheckKeys(n.cfg.PKIDir(), n.master))...)
	b = append(b, programFindings(n.masterProgram())...)
	b = append(b, portFindings(n.cfg.MasterRequest(), n.cfg.MasterPublish())...)
	if len(b) > 0 {
		return b
	}
	if err := n.writeSecret(); err != nil {
		return blockers{{Code: status.StorageUnusable, Subject: n.cfg.ClusterConf(), Cause: err.Error()}}
	}
	text, err := layout.MasterConfig(n.settings(), n.master.Name)
	if err != nil {
		return blockers{{Code: status.MasterConfig, Subject: n.opt.ConfigPath, Cause: err.Error()}}
	}
	client, err := layout.ClientConfig(text)
	if err == nil {
		_, err = layout.WriteFile(filepath.Join(layout.ClientConf(n.cfg), "master"), client, 0o644)
	}
	if err != nil {
		return err
	}
	_, err = layout.WriteSecret(filepath.Join(n.cfg.MasterConf(), "master"), text, n.master)
	return err
}

func keyFindings(err error) blockers {
	if err == nil {
		return nil
	}
	list := []error{err}
	var me *multierror.Error
	if errors.As(err, &me) {
		list = me.Errors
	}
	var b blockers
	for _, e := range list {
		var kf *layout.KeyFault
		if errors.As(e, &kf) {
			b = append(b, status.Finding{Code: status.KeyUnreadable, Subject: kf.Path, Cause: kf.Reason})
		}
	}
	return b
}

func programFindings(path string) []status.Finding {
	fi, err := os.Stat(path)
	switch {
	case err != nil:
		return []status.Finding{{Code: status.ProgramMissing, Subject: path, Cause: err.Error()}}
	case !fi.Mode().IsRegular() || fi.Mode().Perm()&0o111 == 0:
		return []status.Finding{{Code: status.ProgramMissing, Subject: path, Cause: path + " is not an executable file"}}
	}
	return nil
}

func portFindings(addresses ...string) []status.Finding {
	var out []status.Finding
	for _, a := range addresses {
		if err := probe.PortFree(a); err != nil {
			out = append(out, status.Finding{Code: status.PortInUse, Subject: a, Cause: err.Error()})
		}
	}
	return out
}

// reachable turns a wildcard listening address into one that can be dialled.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	switch ip := net.ParseIP(host); {
	case ip == nil || !ip.IsUnspecified():
		return address
	case ip.To4() != nil:
		return net.JoinHostPort("127.0.0.1", port)
	}
	return net.JoinHostPort("::1", port)
}
