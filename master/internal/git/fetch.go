package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/internal/command"
	"saltern/internal/room"
)

// maxPacks is how many packs a repository may have before they are joined.
const maxPacks = 40

// refresh fetches from the remote, and creates a new snapshot if there are changes. It reports
// whether it has created one. The caller holds the token of fetchTurn.
func (r *Repository) refresh(ctx context.Context) (changed bool, err error) {
	set := r.settings.Load()
	agent, stop, err := startAgent(ctx, &set.Remote)
	if err != nil {
		return false, err
	}
	defer stop()

	listed, format, err := r.listRefs(ctx, set, agent)
	if err != nil {
		return false, err
	}

	old := r.Snapshot()
	lacking := r.lacking.Load()
	if old != nil && old.Listed == listed && !lacking {
		return false, set.missingRef(old)
	}

	if err := r.updateCopy(ctx, set, agent, format, lacking); err != nil {
		return false, err
	}

	s, err := r.takeSnapshot(ctx)
	if err != nil {
		return false, err
	}

	s.Listed = listed
	if err := r.repack(ctx); err != nil {
		return false, err
	}

	if err := s.saveTo(r.snapshotFile()); err != nil {
		return false, err
	}

	r.serve(ctx, s)
	changed = old == nil || !slices.Equal(old.Refs, s.Refs)
	return changed, set.missingRef(s)
}

// updateCopy fetches the remote's refs, and the commits that the configuration names. If the local
// copy is damaged or lacks objects, updateCopy fetches everything into an empty repository.
func (r *Repository) updateCopy(ctx context.Context, set *settings, agent, format string, lacking bool) error {
	r.unlock()
	get := func() error {
		if err := r.prepare(ctx, format); err != nil {
			return err
		}
		return r.fetchRefs(ctx, set, agent, set.Refspecs...)
	}

	err := errLacking
	if !lacking {
		err = get()
	}

	var fault *Fault
	if lacking || errors.As(err, &fault) && fault.corrupt {
		r.store.cfg.Log.Warn("copy of a git remote is damaged and is fetched anew", "url", r.URL(), "error", err)
		err = r.refetchEmpty(get)
	}

	if err != nil {
		r.unlock()
		return err
	}

	for _, id := range set.Commits {
		if _, b, err := r.reader.readWhole(ctx, id+"^{commit}", maxObject); err == nil && len(b) > 0 {
			continue
		}
		if err := r.fetchRefs(ctx, set, agent, "+"+id+":refs/saltern/"+id); err != nil {
			return err
		}
	}

	return nil
}

// serve makes s the served snapshot, and calls Prepare.
func (r *Repository) serve(ctx context.Context, s *Snapshot) {
	s.Seq = r.snapshots.Add(1)
	r.served.Store(s)
	if prepare := r.store.cfg.Prepare; prepare != nil {
		prepare(ctx, r, s)
	}
}

// missingRef returns a Fault if the snapshot lacks a branch or tag that the configuration names,
// and otherwise nil.
func (set *settings) missingRef(s *Snapshot) error {
	for _, name := range set.expect {
		_, branch := s.Branch(name)
		if _, tag := s.Tag(name); !branch && !tag {
			return &Fault{
				Kind: RefGone,
				Text: fmt.Sprintf("the remote has no branch or tag %.100q, which the configuration names", name),
			}
		}
	}
	return nil
}

// listRefs asks the remote for its refs. listed is a digest of their list. format is the object
// format of the repository, such as sha1.
func (r *Repository) listRefs(ctx context.Context, set *settings, agent string) (listed, format string, err error) {
	argv, env := set.remoteCommand("", agent, r.store.cfg.KnownHosts)
	argv = append(argv, "ls-remote", "--quiet")
	maxLines := r.store.limits.Refs * 2 // ls-remote may list a tag in two lines
	if slices.Equal(set.Refspecs, DefaultRefspecs()) {
		argv = append(argv, "--heads", "--tags")
	} else {
		maxLines *= 10 // the bound Refs applies only to refs that match the refspecs
	}

	out, err := runGit(ctx, r.store.limits.List, env, append(argv, "--", set.address), maxLines*200)
	if err != nil {
		return "", "", err
	}

	refs, err := parseRefs(out, maxLines)
	if err != nil {
		return "", "", err
	}
	if len(refs) == 0 {
		return "", "", &Fault{Kind: RefGone, Text: "the remote has no branches and no tags"}
	}

	format = "sha1"
	if len(refs[0].id) == 64 {
		format = "sha256"
	}

	h := sha256.New()
	fmt.Fprintf(h, "%q", set.Commits)
	h.Write(out)
	return hex.EncodeToString(h.Sum(nil)), format, nil
}

// runGit runs git until it ends and returns its output.
func runGit(ctx context.Context, limit time.Duration, env, argv []string, maxOutput int) ([]byte, error) {
	return runGitBy(ctx, command.Exec{Limit: limit, MaxOutput: maxOutput, Env: env}, argv)
}

// runGitBy runs git as exec says, and returns its output. git does not outlive this process: the next
// one works in the same repositories.
func runGitBy(ctx context.Context, exec command.Exec, argv []string) ([]byte, error) {
	exec.EndsWithUs = true
	out, err := exec.Run(ctx, argv)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, command.ErrOutput):
		return nil, tooLarge("git says more than is read")
	case errors.Is(err, command.ErrTimeout):
		return nil, &Fault{Kind: Unreachable, Text: fmt.Sprintf("no answer within %v", exec.Limit)}
	case err != nil:
		return nil, &Fault{Kind: Broken, Text: "git cannot be started: is the program git installed?"}
	case out.Exit != 0:
		return nil, faultOf(string(out.Stderr))
	}

	return out.Stdout, nil
}

// prepare creates an empty repository if there is no repository.
func (r *Repository) prepare(ctx context.Context, format string) error {
	if _, err := os.Stat(filepath.Join(r.bareDir(), "HEAD")); err == nil {
		return nil
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return fmt.Errorf("make the copy of a git remote: %w", err)
	}
	argv := []string{"git", "init", "--quiet", "--bare", "--template=", "--object-format=" + format, "--", r.bareDir()}
	_, err := runGit(ctx, r.store.limits.List, localEnv(), argv, 64<<10)
	return err
}

var errLacking = errors.New("objects are missing")

// refetchEmpty calls fetch, which fetches into an empty repository. If fetch fails, refetchEmpty
// restores the damaged repository, which can still serve some files.
func (r *Repository) refetchEmpty(fetch func() error) error {
	aside := r.bareDir() + ".damaged"
	if err := os.RemoveAll(aside); err != nil {
		return fmt.Errorf("put a damaged copy aside: %w", err)
	}

	if err := os.Rename(r.bareDir(), aside); err != nil {
		return fmt.Errorf("put a damaged copy aside: %w", err)
	}

	if err := fetch(); err != nil {
		return errors.Join(err, os.RemoveAll(r.bareDir()), os.Rename(aside, r.bareDir()))
	}

	r.reader.close() // the reader still has the damaged repository open
	r.lacking.Store(false)
	_ = os.RemoveAll(aside) // if this fails, the next call removes the directory
	return nil
}

// fetchRefs fetches refs and their objects. It cancels the fetch if the repository exceeds a bound,
// or if no more bytes arrive.
func (r *Repository) fetchRefs(ctx context.Context, set *settings, agent string, refspecs ...string) error {
	argv, env := set.remoteCommand(r.bareDir(), agent, r.store.cfg.KnownHosts)
	argv = append(argv, "-c", "fetch.unpackLimit=1", "-c", "transfer.unpackLimit=1", "fetch", "--quiet",
		"--no-recurse-submodules", "--no-write-fetch-head", "--no-show-forced-updates")
	own := strings.Contains(refspecs[0], ":refs/saltern/")
	if !own {
		argv = append(argv, "--prune")
	}

	if own || slices.ContainsFunc(refspecs, func(s string) bool { return strings.Contains(s, ":refs/tags/") }) {
		argv = append(argv, "--no-tags") // otherwise git also fetches the tags of the fetched commits
	}

	if set.Depth > 0 {
		argv = append(argv, "--depth="+strconv.Itoa(set.Depth))
	}

	argv = append(append(argv, "--", set.address), refspecs...)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	done := make(chan struct{})
	go func() {
		defer close(done)
		r.watchFetch(ctx, cancel)
	}()

	_, err := runGit(ctx, r.store.limits.Fetch, env, argv, 1<<20)
	cancel(nil)
	<-done
	return err
}

// watchFetch cancels a fetch when the repository exceeds a bound, or when no more bytes arrive.
func (r *Repository) watchFetch(ctx context.Context, cancel context.CancelCauseFunc) {
	t := time.NewTicker(250 * time.Millisecond)
	defer t.Stop()
	var last int64
	moved := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}

		size := sizeOf(filepath.Join(r.bareDir(), "objects"))
		if size > r.store.limits.Size {
			cancel(tooLarge(fmt.Sprintf("the repository has more than %d MiB", r.store.limits.Size>>20)))
			return
		}

		if err := room.Check(r.bareDir(), 0, 0, room.Usual()); err != nil {
			cancel(tooLarge(err.Error()))
			return
		}

		if size != last {
			last, moved = size, time.Now()
		} else if time.Since(moved) > r.store.limits.Stall {
			cancel(&Fault{Kind: Unreachable, Text: fmt.Sprintf("nothing arrived for %v", r.store.limits.Stall)})
			return
		}
	}
}

func sizeOf(dir string) (size int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if fi, err := e.Info(); err == nil {
				size += fi.Size()
			}
		}
		return nil // ignore errors: git creates and removes files meanwhile
	})
	return size
}

// takeSnapshot returns a new snapshot of the refs in the local repository.
func (r *Repository) takeSnapshot(ctx context.Context) (*Snapshot, error) {
	limits := &r.store.limits
	argv := append(localOptions(r.bareDir()), "for-each-ref", "--format=%(objectname) %(refname)",
		"refs/remotes/origin/", "refs/tags/")
	out, err := runGit(ctx, limits.List, localEnv(), argv, limits.Refs*(maxRefName+80))
	if err != nil {
		return nil, err
	}

	refs, err := parseRefs(out, limits.Refs)
	if err != nil {
		return nil, err
	}

	s := &Snapshot{Fetched: r.store.cfg.Now()}
	known := map[string]Ref{}
	for _, ref := range refs {
		found, ok := known[ref.id]
		if !ok {
			_, b, err := r.reader.readWhole(ctx, ref.id+"^{commit}", maxObject)
			if isMissing(err) {
				continue // skip a tag that names a file or a tree
			}

			if err == nil {
				found.Tree, err = parseCommit(b)
			}

			if err != nil {
				return nil, err
			}

			if found.Commit, err = r.peelTag(ctx, ref.id); err != nil {
				return nil, err
			}

			known[ref.id] = found
		}

		found.Name = ref.name
		s.Refs = append(s.Refs, found)
	}

	slices.SortFunc(s.Refs, func(a, b Ref) int { return strings.Compare(a.Name, b.Name) })
	return s, nil
}

// peelTag returns the commit to which an annotated tag leads, if need be through further tags.
func (r *Repository) peelTag(ctx context.Context, id string) (string, error) {
	for range 10 {
		h, b, err := r.reader.readWhole(ctx, id, maxObject)
		if err != nil {
			return "", err
		}
		if h.kind != "tag" {
			return h.id, nil
		}
		if id, err = parseTagged(b); err != nil {
			return "", err
		}
	}
	return "", errors.New("a tag names tags without end")
}

// repack joins the packs of a repository into one if there are too many, and checks the
// repository's size.
func (r *Repository) repack(ctx context.Context) error {
	packs, _ := filepath.Glob(filepath.Join(r.bareDir(), "objects/pack/*.pack"))
	limit := r.store.limits.Size
	if len(packs) > maxPacks || sizeOf(r.bareDir()) > limit {
		// Keep recent objects, because the served snapshot may need objects that no ref reaches any
		// more.
		expire := "1.hour.ago"
		if r.Snapshot() == nil {
			expire = "now"
		}

		argv := append(localOptions(r.bareDir()), "-c", "pack.threads=1", "-c", "pack.windowMemory=64m", "repack",
			"-a", "-d", "-q", "--cruft", "--cruft-expiration="+expire)
		_, err := runGit(ctx, r.store.limits.Fetch, localEnv(), argv, 1<<20)
		if err != nil && ctx.Err() == nil { // git older than 2.37 does not know the option
			_, err = runGit(ctx, r.store.limits.Fetch, localEnv(), argv[:len(argv)-2], 1<<20)
		}
		if err != nil && ctx.Err() == nil {
			r.store.cfg.Log.Warn("packs of a git remote cannot be joined", "url", r.URL(), "error", err)
		}
	}

	if sizeOf(r.bareDir()) > limit {
		return tooLarge(fmt.Sprintf("the repository has more than %d MiB", limit>>20))
	}

	return ctx.Err()
}

// unlock removes the lock files that a killed fetch left. No fetch can be using them, because only
// this process changes the repository, and only one fetch runs at a time.
func (r *Repository) unlock() {
	for _, pattern := range []string{"*.lock", "gc.pid", "objects/pack/tmp_*", "objects/pack/.tmp-*",
		"objects/tmp_objdir-*", "objects/incoming-*", "objects/*/tmp_obj_*", "objects/info/*.lock"} {
		found, _ := filepath.Glob(filepath.Join(r.bareDir(), pattern)) // the pattern is valid
		for _, path := range found {
			if os.RemoveAll(path) == nil {
				r.store.cfg.Log.Debug("removed what a fetch left behind", "path", path)
			}
		}
	}

	_ = filepath.WalkDir(filepath.Join(r.bareDir(), "refs"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.HasSuffix(path, ".lock") {
			_ = os.Remove(path)
		}
		return nil
	})
}
