package repos

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"saltern/master/conf"
	"saltern/master/event"
	"saltern/master/internal/git"
	"saltern/master/runner"
	"saltern/master/value"
)

// Tags of the events that the masters of a cluster send each other.
const (
	// Serving is the tag of the event with the commits that a master serves.
	Serving = event.TagGitServing
	// Fetch is the tag of the event that asks all masters to fetch.
	Fetch = event.TagGitFetch
	// Reload is the tag of the event that asks all masters to read the options of remotes again.
	Reload = event.TagGitReload
)

// Bounds of the data in such events, both sent and received.
const (
	maxPeers   = 64
	maxRemotes = 1000
	maxRefs    = 20 // refs that are listed for each remote
)

// AddRunners adds the runners git.status, git.branches, git.fetch, git.reload, git_pillar.update and
// cache.clear_git_lock.
func (s *Service) AddRunners(t *runner.Table) {
	t.Add("git.status", func(context.Context, *runner.Env, []any, *value.Map) (any, error) { return s.status(), nil })
	t.Add("git.branches", func(context.Context, *runner.Env, []any, *value.Map) (any, error) { return s.branches(), nil })
	t.Add("git.fetch", func(ctx context.Context, _ *runner.Env, _ []any, _ *value.Map) (any, error) {
		if s.store == nil {
			return nil, errors.New("no git remote is configured: see gitfs_remotes and ext_pillar")
		}
		s.askPeers()
		_, err := s.store.FetchAll(ctx, nil)
		return s.status(), err
	})

	t.Add("git.reload", func(ctx context.Context, _ *runner.Env, _ []any, _ *value.Map) (any, error) {
		if err := s.Reload(ctx); err != nil {
			return nil, err
		}
		s.cfg.Fire(Reload, value.NewMap("id", s.cfg.Options.ID))
		return true, nil
	})

	t.Add("git_pillar.update", s.updatePillars)
	t.Add("cache.clear_git_lock", func(context.Context, *runner.Env, []any, *value.Map) (any, error) {
		return value.NewMap("cleared", []any{}, "note", "there are no git locks on this master"), nil
	})
}

// updateFiles fetches the remotes of gitfs on this master, and asks all other masters to fetch. It
// reports whether a remote has changed on this master.
func (s *Service) updateFiles(ctx context.Context) (changed bool, err error) {
	s.askPeers()
	files := s.files.Repositories()
	return s.store.FetchAll(ctx, func(r *git.Repository) bool { return slices.Contains(files, r) })
}

// updatePillars runs the runner git_pillar.update (salt/runners/git_pillar.py). For each remote it
// returns True if the fetch found changes, None if it found none, and False if the fetch failed.
func (s *Service) updatePillars(ctx context.Context, _ *runner.Env, args []any, named *value.Map) (any, error) {
	filter := []string{named.Str("branch"), named.Str("repo")}
	for i, v := range args[:min(len(args), 2)] {
		filter[i], _ = v.(string)
	}

	out := value.NewMap()
	if s.pillars != nil {
		s.askPeers()
		for _, r := range s.pillars.Remotes() {
			if filter[0] != "" && filter[0] != r.Branch ||
				filter[1] != "" && filter[1] != r.URL && filter[1] != r.Name {
				continue
			}

			var result any
			switch changed, err := r.Repository.Fetch(ctx); {
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case err != nil:
				result = false
			case changed:
				result = true
			}

			out.Set(conf.Shown(r.ID), result)
		}
	}

	if out.Len() > 0 {
		return out, nil
	}

	// Both errors below have Salt's texts.
	if filter[0]+filter[1] != "" {
		return nil, &runner.Exception{
			Name:    "SaltRunnerError",
			Message: "Specified git branch/repo not found in ext_pillar config",
		}
	}

	return nil, &runner.Exception{Name: "SaltRunnerError", Message: "No git_pillar remotes are configured"}
}

// askPeers asks the other masters to fetch.
func (s *Service) askPeers() { s.cfg.Fire(Fetch, value.NewMap("id", s.cfg.Options.ID)) }

// Peer handles an event of another master.
func (s *Service) Peer(peer, tag string, data *value.Map) {
	switch tag {
	case Reload:
		select {
		case s.reloadAgain <- struct{}{}:
		default:
		}
	case Fetch:
		select {
		case s.fetchAgain <- struct{}{}:
		default: // such a request is already waiting
		}
	case Serving:
		remotes := data.Map("remotes")
		if remotes.Len() > maxRemotes {
			return
		}
		s.takeServing(peer, remotes)
	}
}

// takeServing records the commits that another master serves. If a remote has changed at the other
// master, takeServing schedules a fetch of the remote at this master. So the masters need not wait
// for the next regular fetch to serve the same commits.
func (s *Service) takeServing(peer string, remotes *value.Map) {
	if s.store == nil {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.peers[peer]
	if !known && len(s.peers) >= maxPeers {
		return
	}

	s.peers[peer] = remotes
	for _, r := range s.store.Repositories() {
		theirs := remotes.Map(r.URL()).Str("state")
		if theirs == "" || known && theirs == before.Map(r.URL()).Str("state") {
			// The remote has not changed at that master since its last report, which has already
			// caused a fetch here. If the commits still differ, the other master may have other
			// options.
			continue
		}
		if snap := r.Snapshot(); snap != nil && digest(snap) != theirs {
			s.behind[r] = true
		}
	}

	if len(s.behind) > 0 {
		select {
		case s.follow <- struct{}{}:
		default:
		}
	}
}

// catchUp fetches the remotes for which other masters serve different commits.
func (s *Service) catchUp(ctx context.Context) {
	s.mu.Lock()
	behind := s.behind
	s.behind = map[*git.Repository]bool{}
	s.mu.Unlock()
	// The store reports errors.
	_, _ = s.store.FetchAll(ctx, func(r *git.Repository) bool { return behind[r] })
}

// serving returns the state of the remotes that this master serves: for each remote a digest of all
// its refs, and the commits of the first maxRefs refs.
func (s *Service) serving() *value.Map {
	out := value.NewMap()
	for _, r := range s.store.Repositories() {
		m := value.NewMap("state", nil)
		if snap := r.Snapshot(); snap != nil {
			refs := value.NewMap()
			for _, ref := range snap.Refs[:min(len(snap.Refs), maxRefs)] {
				refs.Set(ref.Name, ref.Commit)
			}

			m = value.NewMap("state", digest(snap), "refs", refs, "changed", snap.Fetched.UTC().Format(time.RFC3339))
			if n := len(snap.Refs) - maxRefs; n > 0 {
				m.Set("more_refs", int64(n))
			}
		}

		out.Set(r.URL(), m)
	}

	return value.NewMap("remotes", out)
}

// digest returns a short hash over all refs of a snapshot and their commits.
func digest(snap *git.Snapshot) string {
	h := sha256.New()
	for _, ref := range snap.Refs {
		fmt.Fprintln(h, ref.Name, ref.Commit)
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// status returns the answer of the runner git.status: each remote, with the commits that this
// master and the other masters serve. Two masters with the same state of a remote serve the same
// commits.
func (s *Service) status() *value.Map {
	out := value.NewMap()
	if s.store == nil {
		return out
	}

	ours := s.serving().Map("remotes")
	for _, r := range s.store.Repositories() {
		st := r.Status()
		m := ours.Map(st.URL).Clone()
		m.Set("every_seconds", int64(st.Interval.Seconds()))
		if !st.Fetched.IsZero() {
			m.Set("fetched", st.Fetched.UTC().Format(time.RFC3339))
		}

		if st.Fault != nil {
			m.Set("fault",
				value.NewMap("kind", string(st.Fault.Kind), "text", st.Fault.Text, "since",
					st.Since.UTC().Format(time.RFC3339)))
		}

		others := value.NewMap()
		s.mu.Lock()
		for _, peer := range slices.Sorted(maps.Keys(s.peers)) {
			theirs := s.peers[peer].Map(st.URL)
			others.Set(peer,
				value.NewMap("state", theirs.Value("state"), "changed", theirs.Value("changed"), "same",
					theirs.Value("state") == m.Value("state")))
		}
		s.mu.Unlock()

		if others.Len() > 0 {
			m.Set("other_masters", others)
		}

		out.Set(st.URL, m)
	}

	return out
}
