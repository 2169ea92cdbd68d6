package life

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"saltern/supervisor/internal/childlog"
	"saltern/supervisor/internal/confine"
	"saltern/supervisor/internal/probe"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/internal/vip"
	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// children is what the services that are programs of their own have in common.
type children struct {
	Config
	master, lb layout.Account
	logs       map[string]*childlog.Log

	mu        sync.Mutex
	blocked   map[string][]status.Finding // why a service is not started, by service
	unbounded map[string]string           // why a child has no bound on its memory
}

func newChildren(cfg Config) (*children, error) {
	c := &children{
		Config:    cfg,
		logs:      map[string]*childlog.Log{},
		blocked:   map[string][]status.Finding{},
		unbounded: map[string]string{},
	}
	var err error
	if c.master, err = layout.FindAccount(cfg.Settings.Users.Master); err != nil {
		return nil, err
	}
	c.lb, err = layout.FindAccount(cfg.Settings.Users.LB)
	return c, err
}

// output is where a child of that name writes.
func (c *children) output(name string) *service.Lines {
	l := childlog.New(name, c.Settings.LogDir(), c.Log, c.Now)
	c.logs[name] = l
	return service.NewLines(l.Line)
}

func pidFile(s *settings.Settings, name string) string {
	return filepath.Join(s.RuntimeDir, name+".pid")
}

// make makes the directories of the master and of the load balancer.
func (c *children) make() error { return layout.Make(c.Settings, c.master, c.lb) }

// accountThere refuses to run a child as root in the image because its account
// is missing. Elsewhere that is shown (SCA-502).
func (c *children) accountThere(child, name string, a layout.Account) error {
	if !a.Missing || !c.InImage {
		return nil
	}
	return blockers{{
		Code:    status.AccountMissing,
		Subject: child,
		Cause:   "there is no account " + name + " on this machine",
	}}
}

// asRoot are the children that run as root for want of an account.
func (c *children) asRoot() (names []string) {
	if c.master.Missing && !c.InImage && !c.Settings.Arbiter {
		names = append(names, "salt-master")
		if c.Settings.API.Enabled {
			names = append(names, "salt-api")
		}
	}
	if c.lb.Missing && !c.InImage && c.Settings.LB.Enabled {
		names = append(names, "applianced lb")
	}
	return names
}

// childEnv is the whole environment of a child: no notification socket, no
// credentials, nothing of ours.
func childEnv() []string {
	path := os.Getenv("PATH")
	path = cmp.Or(path, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
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
func (c *children) block(name string, err error) error {
	var b blockers
	if err != nil && !errors.As(err, &b) {
		b = blockers{c.unprepared(name, err)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blocked[name] = b
	return err
}

// unprepared is the finding for a service that could not be prepared: a file that could not be
// read or written, or anything else.
func (c *children) unprepared(name string, err error) status.Finding {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return probe.FileFinding(c.folderOf(pe.Path), pe)
	}
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		return probe.FileFinding(c.folderOf(le.New), le)
	}
	code := status.MasterDown
	if name == status.BalancerService {
		code = status.BalancerDown
	}
	return status.Finding{Code: code, Cause: "it cannot be started: " + settings.OneLine(err)}
}

// folderOf is the folder of the settings in which a file is; the file itself if it is in none.
func (c *children) folderOf(path string) string {
	for _, dir := range []string{c.Settings.StorageDir(), c.Settings.DataDir, c.Settings.RuntimeDir} {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return dir
		}
	}
	return path
}

// confine bounds a child that was just started; what was not possible is shown.
func (c *children) confine(ctx context.Context, child string, pid, oom, percent int) error {
	err := confine.Child(ctx, child, pid, oom, percent, c.Log)
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.unbounded[child]
	delete(c.unbounded, child)
	if err != nil {
		c.unbounded[child] = err.Error()
	}
	if err != nil && before != err.Error() {
		c.Log.Warn("a child has no bound on its memory", "service", child, "error", err)
	}
	return err
}

// End ends what an earlier life has left behind.
func End(ctx context.Context, cfg *settings.Settings) error {
	lb := service.Lasting{
		PIDFile:     pidFile(cfg, status.BalancerService),
		Pipe:        filepath.Join(cfg.RuntimeDir, status.BalancerService+".out"),
		StopTimeout: cfg.Limits.StopTimeout,
	}
	lb.Stop()
	master := service.Process{PIDFile: pidFile(cfg, status.MasterService)}
	address := vip.Daemon{Dir: filepath.Join(cfg.RuntimeDir, "vip")}
	api := service.Process{PIDFile: pidFile(cfg, status.APIService)}
	return errors.Join(api.KillStale(ctx), master.KillStale(ctx), address.KillStale(ctx))
}
