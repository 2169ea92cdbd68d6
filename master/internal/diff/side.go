package diff

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"saltern/master/internal/gitfs"
	"saltern/master/internal/gitremote"
	"saltern/master/internal/pillar"
	"saltern/master/internal/pillar/memo"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
)

// side is one side of a comparison.
type side struct {
	pillars *pillar.Compiler
	states  *pillar.Compiler // nil: pillars are compared
	git     *gitfs.Pinned    // files of states from git; may be nil
	refs    int              // trees of the ref
	release []func()         // let trees of the ref be removed
}

// close lets the trees of the ref be removed. s may be nil.
func (s *side) close() {
	if s == nil {
		return
	}
	for _, release := range s.release {
		release()
	}
}

// keepEvery is how often keep must be called.
const keepEvery = time.Minute

// keep keeps the directories of a side on disk. Those of git pillars remain while they are used.
func (s *side) keep(ctx context.Context) error {
	if s.git == nil {
		return nil
	}
	return s.git.Keep(ctx)
}

// side returns a side of a comparison, which the caller must close. It may also return one with an
// error. work is a directory for copies that does not exist yet.
func (s *Service) side(ctx context.Context, r Request, what What, work string, pool *renderer.Pool) (*side, error) {
	cfg := s.cfg.Pillar
	cfg.Renderers = pool
	cfg.Memo = memo.New(memo.Config{Bytes: memoBytes})
	cfg.Log = slog.New(slog.DiscardHandler)
	cfg.ShowRenderErrors = false
	cfg.PillarOpts = false
	compare := &pillar.Compare{Confined: !s.cfg.Trusted, Hide: s.names.hide}
	if r.readers { // all files are served, and no value is shown
		compare = &pillar.Compare{Confined: true}
	}
	cfg.Compare = compare

	copied := ""
	if what.Folder != "" {
		var err error
		if copied, err = s.copyFolder(ctx, what.Folder, work); err != nil {
			return nil, err
		}
	}
	if copied != "" && !r.States {
		env := cmp.Or(r.Env, "base")
		if len(cfg.Roots[env]) == 0 {
			return nil, fmt.Errorf("pillar_roots has no environment %.60q that a folder could take the place of; see env=", env)
		}
		cfg.Roots = maps.Clone(cfg.Roots)
		cfg.Roots[env] = []string{copied}
		compare.Untrusted = append(compare.Untrusted, copied)
	}

	out := &side{}
	if cfg.Git != nil {
		pinned, err := cfg.Git.Pin(ctx, gitremote.Pin{Ref: what.Ref, Remote: r.Remote, Into: r.Into})
		out.release = append(out.release, pinned.Release)
		if err != nil {
			return out, fmt.Errorf("compare %s: %w", what, err)
		}
		cfg.Git = pinned.Source
		out.refs = len(pinned.Trees)
		for _, dir := range slices.Sorted(maps.Values(pinned.Trees)) {
			compare.Untrusted = append(compare.Untrusted, dir, dir+".mounts")
		}
	}

	out.pillars = pillar.New(cfg)
	if !r.States {
		return out, nil
	}
	return out, s.stateSide(ctx, r, what, copied, cfg, out)
}

// decryptedPlaces returns the places of the option decrypt_pillar. It has the forms of
// salt/pillar/__init__.py decrypt_pillar.
func decryptedPlaces(option any, delimiter string) (places [][]any) {
	list, ok := option.([]any)
	if !ok && option != nil {
		list = []any{option}
	}
	add := func(place string) {
		places = append(places, value.List(strings.Split(place, cmp.Or(delimiter, ":"))))
	}
	for _, entry := range list {
		switch entry := entry.(type) {
		case string:
			add(entry)
		case *value.Map:
			for k := range entry.All() {
				add(value.Str(k))
			}
		}
	}
	return places
}
