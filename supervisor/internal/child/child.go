// Package child holds what the programs that a node runs have in common: their accounts, logs and
// environment, the limit on their memory, and the findings that prevent their start.
package child

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"saltern/supervisor/internal/childlog"
	"saltern/supervisor/internal/confine"
	"saltern/supervisor/internal/probe"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// Env holds what all parts of a node use.
type Env struct {
	Settings   *settings.Settings
	Log        *slog.Logger
	Now        func() time.Time
	Executable string // path of this program, which is also the load balancer; salt-master is beside it
	ConfigPath string // path of appliance.yaml
}

// Beside returns the path of a program in the same folder as this program.
func (e Env) Beside(name string) string { return filepath.Join(filepath.Dir(e.Executable), name) }

// PIDFile returns the path of the file with the process ID of a service.
func PIDFile(s *settings.Settings, service string) string {
	return filepath.Join(s.RuntimeDir, service+".pid")
}

// Environ returns the whole environment of a child. Of this process's variables it contains only
// PATH: no notification socket and no credentials.
func Environ() []string {
	path := cmp.Or(os.Getenv("PATH"), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	return []string{"PATH=" + path, "LANG=C.UTF-8", "HOME=/"}
}

// Programs holds the accounts and logs of one node's programs. Its methods are safe for concurrent
// use, except [Programs.Output], which is only for the construction of a node.
type Programs struct {
	Master   layout.Account // account of salt-master and salt-api
	Balancer layout.Account // account of the load balancer

	env     Env
	inImage bool
	logs    map[string]*childlog.Log

	mu        sync.Mutex
	blocked   map[string][]status.Finding // why a service is not started, by the service's name
	unbounded map[string]string           // why a child has no limit on its memory, by the service's name
}

// NewPrograms finds the accounts of the programs. On the image (inImage) a child whose account is
// missing is not started; elsewhere it runs as root.
func NewPrograms(env Env, inImage bool) (*Programs, error) {
	master, err := layout.FindAccount(env.Settings.Users.Master)
	if err != nil {
		return nil, err
	}

	balancer, err := layout.FindAccount(env.Settings.Users.LB)
	if err != nil {
		return nil, err
	}

	return &Programs{
		Master:    master,
		Balancer:  balancer,
		env:       env,
		inImage:   inImage,
		logs:      map[string]*childlog.Log{},
		blocked:   map[string][]status.Finding{},
		unbounded: map[string]string{},
	}, nil
}

// Output returns a writer for the output of a service. The output also goes to the service's log.
func (p *Programs) Output(name string) *service.Lines {
	l := childlog.New(name, p.env.Settings.LogDir(), p.env.Log, p.env.Now)
	p.logs[name] = l
	return service.NewLines(l.Line)
}

// Log returns the log of a service, or nil if it has none.
func (p *Programs) Log(service string) *childlog.Log { return p.logs[service] }

// Close closes the logs. After that, no [Programs.Output] may be written to.
func (p *Programs) Close() {
	for _, l := range p.logs {
		l.Close()
	}
}

// MakeDirectories creates the directories of the master and of the load balancer.
func (p *Programs) MakeDirectories() error { return layout.Make(p.env.Settings, p.Master, p.Balancer) }

// RequireAccount returns an error on the image if a child would run as root because its account is
// missing. On other systems the status shows the missing account (SCA-502).
func (p *Programs) RequireAccount(child, name string, a layout.Account) error {
	if !a.Missing || !p.inImage {
		return nil
	}
	return Blockers{{
		Code:    status.AccountMissing,
		Subject: child,
		Cause:   "there is no account " + name + " on this machine",
	}}
}

// AsRoot returns the names of the children that run as root because their account is missing.
func (p *Programs) AsRoot() (names []string) {
	s := p.env.Settings
	if p.Master.Missing && !p.inImage && !s.Arbiter {
		names = append(names, "salt-master")
		if s.API.Enabled {
			names = append(names, "salt-api")
		}
	}
	if p.Balancer.Missing && !p.inImage && s.LB.Enabled {
		names = append(names, "applianced lb")
	}
	return names
}

// Blockers is an error that consists of findings for the status.
type Blockers []status.Finding

func (b Blockers) Error() string {
	var words []string
	for _, f := range b {
		words = append(words, f.Cause)
	}
	return strings.Join(words, "; ")
}

// Block records why a service is not started, for the status, and returns err. If err is nil,
// nothing prevents the start.
func (p *Programs) Block(service string, err error) error {
	var found Blockers
	if err != nil && !errors.As(err, &found) {
		found = Blockers{p.unprepared(service, err)}
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked[service] = found
	return err
}

// unprepared returns the finding for a service that could not be prepared, because a file could not
// be read or written, or for another reason.
func (p *Programs) unprepared(service string, err error) status.Finding {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return probe.FileFinding(p.folderOf(pe.Path), pe)
	}
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		return probe.FileFinding(p.folderOf(le.New), le)
	}

	code := status.MasterDown
	if service == status.BalancerService {
		code = status.BalancerDown
	}
	return status.Finding{Code: code, Cause: "it cannot be started: " + settings.OneLine(err)}
}

// folderOf returns the folder of the settings that contains a file, or the file itself if none
// does.
func (p *Programs) folderOf(path string) string {
	s := p.env.Settings
	for _, dir := range []string{s.StorageDir(), s.DataDir, s.RuntimeDir} {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return dir
		}
	}
	return path
}

// Confine limits the memory of a child that has just started to percent of the machine's memory.
// oom is its OOM adjustment: the higher it is, the sooner the kernel kills the child when memory is
// short. The status shows what could not be set.
func (p *Programs) Confine(ctx context.Context, service string, pid, oom, percent int) error {
	err := confine.Child(ctx, service, pid, oom, percent, p.env.Log)
	p.mu.Lock()
	defer p.mu.Unlock()

	before := p.unbounded[service]
	delete(p.unbounded, service)
	if err != nil {
		p.unbounded[service] = err.Error()
	}

	if err != nil && before != err.Error() {
		p.env.Log.Warn("a child has no bound on its memory", "service", service, "error", err)
	}
	return err
}

// KillRest kills what a child that has ended has left behind outside of its process group.
func (p *Programs) KillRest(service string, pid int) {
	if err := confine.KillRest(context.Background(), service, pid); err != nil {
		p.env.Log.Warn("processes of a child that has ended may go on", "service", service, "error", err)
	}
}

// Blocked returns why services are not started, by the service's name.
func (p *Programs) Blocked() map[string][]status.Finding {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.blocked)
}

// Unbounded returns why children have no limit on their memory, by the service's name.
func (p *Programs) Unbounded() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.unbounded)
}

// CheckTakes is the longest time that a program may take to check a configuration folder.
const CheckTakes = 20 * time.Second

// CheckProgram returns findings that say why the program at path cannot be run.
func CheckProgram(path string) []status.Finding {
	fi, err := os.Stat(path)
	switch {
	case probe.IsOfDisk(err):
		return []status.Finding{probe.FileFinding(path, err)}
	case err != nil:
		return []status.Finding{{Code: status.ProgramMissing, Subject: path, Cause: err.Error()}}
	case !fi.Mode().IsRegular() || fi.Mode().Perm()&0o111 == 0:
		return []status.Finding{{
			Code:    status.ProgramMissing,
			Subject: path,
			Cause:   path + " is not an executable file",
		}}
	}

	return nil
}
