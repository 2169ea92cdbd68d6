package pillar

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"saltern/master/internal/fileserver"
	"saltern/master/internal/gitpillar"
	"saltern/master/internal/pillar/extpillar"
	"saltern/master/internal/pillar/gpg"
	"saltern/master/internal/pillar/memo"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/target"
	"saltern/master/value"
)

// Config configures a Compiler. Salt's option names follow in comments.
type Config struct {
	Roots map[string][]string // environment → directories (pillar_roots)
	// RootOrder lists environments in the order of the configuration. Environments that RootOrder
	// lacks follow, sorted by name.
	RootOrder           []string
	Top                 string // state_top; "": top.sls
	Renderer            string // renderer; "": jinja|yaml
	RestrictedRenderers bool   // renderer_whitelist or renderer_blacklist is set
	// CustomJinja means that jinja_env or jinja_sls_env is set, so the markers of templates may
	// differ.
	CustomJinja      bool
	TrimJinja        bool              // jinja_trim_blocks or jinja_lstrip_blocks is set
	Strategy         string            // pillar_source_merging_strategy; "": smart
	MergeLists       bool              // pillar_merge_lists
	IncludesOverride bool              // pillar_includes_override_sls
	ShowRenderErrors bool              // pillar_safe_render_error is off
	EnvOrder         []string          // env_order
	Pillarenv        string            // pillarenv of the master
	Saltenv          string            // saltenv of the master
	PillarenvFromEnv bool              // pillarenv_from_saltenv
	Nodegroups       *value.Map        // nodegroups
	ExtPillar        []any             // ext_pillar
	ExtPillarFirst   bool              // ext_pillar_first
	Git              *gitpillar.Source // git entries of ExtPillar; nil: there are none
	GitIncludes      bool              // git_pillar_includes
	Decrypt          bool              // decrypt_pillar is set
	// DecryptKeys are the keys of decrypt_pillar, if gpg alone is to decrypt them; see
	// ReadDecryptKeys. It may be nil: Python decrypts.
	DecryptKeys *DecryptKeys
	// GPG decrypts for the renderer gpg and for DecryptKeys. The Compiler does not close it. It may be
	// nil: Python decrypts.
	GPG *gpg.Decrypter
	// External runs entries of ExtPillar without Python. The Compiler does not close it. It may be nil:
	// Python runs all entries but git.
	External    *extpillar.Runner
	MasterTops  bool               // master_tops is set
	PillarOpts  bool               // pillar_opts
	Opts        *value.Map         // all options of the master, for PillarOpts
	SaltVersion string             // version of Salt that the pillar shows with PillarOpts
	Ignore      *fileserver.Ignore // file_ignore_regex and file_ignore_glob
	// Renderers may be nil: there are no renderers. The Compiler does not close them.
	Renderers *renderer.Pool
	// Memo stores the results of templates for other minions with the same values
	// (saltern_pillar_memo). It may be nil: no results are stored.
	Memo *memo.Store
	// Compare is set for a compilation whose result is compared and not served, see Outcome. It may
	// be nil: pillars are served.
	Compare *Compare
	Match   Match            // nil: package target does the matching
	Log     *slog.Logger     // nil: no log
	Now     func() time.Time // nil: time.Now
}

// Match reports whether a target in a top file selects a minion.
type Match func(tgt, typ, id string, grains, pillar *value.Map, nodegroups *value.Map) (bool, error)

// Request is one minion's request for its pillar.
type Request struct {
	ID string // authenticated id of the minion
	// Grains are the grains that the minion sent. The Compiler replaces the grain id by ID.
	Grains             *value.Map
	Saltenv, Pillarenv string     // "": the minion names none
	Override           *value.Map // pillar_override (pillar= on a command line)
	Extra              *value.Map // extra_minion_data, for ext_pillar
	Ext                any        // an on-demand ext_pillar, which the Compiler refuses
	// secrets stands for the time from which the request waits; nil: it comes now
	secrets *gpg.Question
	// asked holds what commands of ext_pillar have said for the request; nil: they run each time
	asked *extpillar.Asked
}

// Compiler compiles pillars. All methods may be called concurrently.
type Compiler struct {
	cfg     Config
	log     *slog.Logger
	files   *files
	chain   []chainPart
	sources sourceSums // only with Config.Compare
	// distrusted are the files that are rendered as Salt does, see Check
	distrusted distrusted
}

// New returns a Compiler.
func New(cfg Config) *Compiler {
	cfg.Top = cmp.Or(cfg.Top, "top.sls")
	cfg.Top = strings.TrimLeft(strings.TrimPrefix(cfg.Top, "salt://"), "/")
	cfg.Renderer = cmp.Or(cfg.Renderer, "jinja|yaml")
	cfg.Strategy = cmp.Or(cfg.Strategy, "smart")
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))

	if cfg.Now == nil {
		cfg.Now = time.Now
	}

	if cfg.Compare != nil && cfg.Compare.Confined {
		cfg.Memo = cmp.Or(cfg.Memo, memo.New(memo.Config{Now: cfg.Now}))
	}

	if cfg.Match == nil {
		cfg.Match = matchTarget
	}

	if cfg.Memo != nil && (cfg.RestrictedRenderers || needsPython(cfg.Strategy, cfg.Renderer)) {
		cfg.Log.Warn("saltern_pillar_memo does nothing: with renderer_whitelist, renderer_blacklist, the renderer yamlex or the pillar_source_merging_strategy aggregate each pillar is rendered for its minion; remove one or the other option")
	}

	for _, env := range slices.Sorted(maps.Keys(cfg.Roots)) {
		if !slices.Contains(cfg.RootOrder, env) {
			cfg.RootOrder = append(slices.Clip(cfg.RootOrder), env)
		}
	}

	return &Compiler{cfg: cfg, log: cfg.Log, files: newFiles(&cfg), chain: splitChain(cfg.ExtPillar, cfg.External != nil)}
}

// Tops runs the master_tops modules for a minion with the given options. It returns a map of
// environments to lists of SLS, and logs errors of modules.
func (c *Compiler) Tops(ctx context.Context, minionOpts *value.Map) (*value.Map, error) {
	if !c.cfg.MasterTops {
		return value.NewMap(), nil
	}
	if c.cfg.Renderers == nil {
		return value.NewMap(), errNoRenderers
	}

	m, errs, err := c.cfg.Renderers.Tops(ctx, minionOpts)
	if renderer.Unable(err) {
		err = fmt.Errorf("%w: %w", ErrUnable, err)
	}

	for _, e := range errs {
		c.log.Error("master_tops", "minion", minionOpts.Str("id"), "error", e)
	}

	m = cmp.Or(m, value.NewMap())
	return m, err
}

// singleMinion is a target.Source that contains only one minion.
type singleMinion struct{ grains, pillar *value.Map }

func (o singleMinion) Grains(string) (*value.Map, bool) { return o.grains, true }
func (o singleMinion) Pillar(string) (*value.Map, bool) { return o.pillar, true }

func matchTarget(tgt, typ, id string, grains, pillar, nodegroups *value.Map) (bool, error) {
	m, err := target.Compile(tgt, typ, target.Env{Nodegroups: nodegroups, Source: singleMinion{grains, pillar}})
	if err != nil {
		return false, err
	}
	return m.Match(id), nil
}

// Env returns the environment in which the pillar of a request is compiled, or "".
func (c *Compiler) Env(req Request) string {
	switch {
	case req.Pillarenv != "":
		return req.Pillarenv
	case c.cfg.PillarenvFromEnv:
		return req.Saltenv
	}
	return c.cfg.Pillarenv
}

// Override returns p with override merged over it. p is a pillar that was compiled without
// pillar_override. Override changes neither of its arguments.
func (c *Compiler) Override(p, override *value.Map) *value.Map {
	if override.Len() == 0 {
		return p
	}
	return mergeBy(p, override, c.cfg.Strategy, c.cfg.MergeLists)
}
