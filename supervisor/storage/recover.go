package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/durable"
	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
)

// Recovery creates a volume for a new cluster of one node from this node's copy of a volume
// whose other copies are lost. The copy becomes a local directory; a [Migration] then brings
// it onto the new volume while the node serves. The old copy stays as it is.
type Recovery struct {
	s          *settings.Settings
	executable string
	log        *slog.Logger
}

// NewRecovery returns a recovery for a node on a volume. It changes nothing yet.
func NewRecovery(s *settings.Settings, executable string, log *slog.Logger) *Recovery {
	return &Recovery{s, executable, log}
}

// Ready reports whether [Recovery.Copy] has made its copy, so that [Recovery.Switch] can follow.
func (r *Recovery) Ready() bool { return exists(filepath.Join(localDir(r.s), "pki")) }

// recoverSpec is the argument of the child that copies.
type recoverSpec struct {
	Brick string `json:"brick"`
	Dest  string `json:"dest"`
	Index string `json:"index"`
}

// Copy copies the content of the brick, completely or not at all. Nobody may write to the volume
// during the call. Copy may be repeated.
func (r *Recovery) Copy(ctx context.Context, brick string) error {
	if r.Ready() {
		return nil
	}

	dest := localDir(r.s)
	if exists(dest) {
		return fmt.Errorf("recover: %s is in the way; move it away", dest)
	}

	spec, err := json.Marshal(recoverSpec{brick, dest + ".recovering",
		filepath.Join(r.s.DataDir, "storage", "recovered.json")})
	if err != nil {
		return err
	}

	var did mirrorReport
	if err := askOnce(ctx, []string{r.executable, "storage", "helper", "recover", string(spec)}, &did); err != nil {
		return fmt.Errorf("copy %s: %w", brick, err)
	}

	if err := os.Rename(dest+".recovering", dest); err != nil {
		return fmt.Errorf("recover: %w", err)
	}

	return durable.SyncDir(filepath.Dir(dest))
}

// Switch removes the old pool from this node's GlusterFS, and permits the node to create a new
// volume. old is the directory of the node's copy. It returns the brick for the new volume. The
// node's services must not run.
func (r *Recovery) Switch(ctx context.Context, old string) (brick string, err error) {
	m := New(FromSettings(r.s, r.executable, layout.Account{}, r.log))
	if err := m.Forget(ctx); err != nil {
		return "", fmt.Errorf("forget the lost volume: %w", err)
	}
	for _, pid := range brickProcesses(old) { // brick processes outlive glusterd
		_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have ended
	}
	if err := AllowForm(r.s); err != nil {
		return "", err
	}
	return m.FreshBrick()
}

// brickProcesses returns the processes of GlusterFS that serve a brick, and the heal daemon, which
// heals all volumes. It omits processes of other bricks and of containers.
func brickProcesses(brick string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		if inContainer(d) {
			continue
		}

		pid, err := strconv.Atoi(filepath.Base(d))
		comm, err2 := os.ReadFile(filepath.Join(d, "comm"))
		args, err3 := os.ReadFile(filepath.Join(d, "cmdline"))
		if errors.Join(err, err2, err3) != nil {
			continue // the process has ended
		}

		words := strings.Split(string(args), "\x00")
		switch strings.TrimSpace(string(comm)) {
		case "glusterfsd":
			if i := slices.Index(words, "--brick-name"); i >= 0 && i+1 < len(words) && words[i+1] == brick {
				pids = append(pids, pid)
			}
		case "glusterfs", "glustershd":
			if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "glustershd") }) {
				pids = append(pids, pid)
			}
		}
	}

	return pids
}

// inContainer reports whether the process with the folder dir in /proc runs in a container: such a
// process has IDs in more than one PID namespace (NSpid in proc_pid_status(5)).
func inContainer(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return false // the process has ended
	}
	for line := range strings.Lines(string(b)) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(numbers)) > 1
		}
	}
	return false
}

// recoverChild is the main function of the child of Recovery.Copy. It copies when its parent
// requests it, and returns the exit status.
func recoverChild(args []string, in io.Reader, out, errOut io.Writer) int {
	var spec recoverSpec
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &spec) != nil || !filepath.IsAbs(spec.Dest) ||
		!filepath.IsAbs(spec.Brick) {
		fmt.Fprintln(errOut, "recover: a specification is needed")
		return 2
	}
	return serveLines(in, out, func([]byte) (any, error) { return takeBrick(spec, tellSteps(out)) })
}

// takeBrick copies the content of a brick. It calls step after each part of the work.
func takeBrick(spec recoverSpec, step func()) (r mirrorReport, err error) {
	if !exists(filepath.Join(spec.Brick, "pki", "cluster.pem")) {
		return r, fmt.Errorf("%s holds no cluster's key: it is no copy of the cluster's data", spec.Brick)
	}

	if err := errors.Join(os.RemoveAll(spec.Dest), remove(spec.Index)); err != nil {
		return r, err
	}

	c := newCopier(mirrorSpec{
		Source: spec.Brick,
		Dest:   spec.Dest,
		Index:  spec.Index,
		Any:    true,
		Trees:  slices.DeleteFunc(movedTrees(), func(t string) bool { return !exists(filepath.Join(spec.Brick, t)) }),
	})

	c.step = step

	for _, d := range []string{spec.Dest, filepath.Join(spec.Dest, "srv"), filepath.Join(spec.Dest, "etc"),
		filepath.Join(spec.Dest, "cache")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return r, err
		}
	}

	if err := os.Mkdir(filepath.Join(spec.Dest, "nodes"), 0o700); err != nil {
		return r, err
	}

	if r, err = c.runPass(); err != nil {
		return r, err
	}

	if err := c.verify(); err != nil {
		return r, err
	}

	return r, syncFileSystem(spec.Dest, step)
}

// syncFileSystem writes the file system of a directory to the disk. The progress of the sync is not
// known, so syncFileSystem calls step each second until the sync is done.
func syncFileSystem(dir string, step func()) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()

	synced := make(chan error, 1)
	go func() { synced <- unix.Syncfs(int(d.Fd())) }()

	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case err := <-synced:
			return err
		case <-second.C:
			step()
		}
	}
}
