package renderer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"saltern/master/internal/pillar/memo"
	"saltern/master/value"
)

// Minion describes the minion for which a session renders.
type Minion struct {
	ID        string
	Grains    *value.Map
	Saltenv   any        // text or nil
	Pillarenv any        // text or nil
	Pillar    *value.Map // the pillar that templates see; nil: empty
	Opts      *value.Map // options for this session only, such as pillar_roots
	Master    bool       // render as the master itself, for master_tops
	Watch     bool       // watch for changes that Session.Altered reports
	// Needed is called when a worker is free. If it returns false, Pool.Session returns
	// ErrNotNeeded. Needed may be nil: the session is needed.
	Needed func() bool
}

// Session is a worker that is prepared for one minion. Only one goroutine may use it. The caller
// must close it.
type Session struct {
	pool      *Pool
	isReactor bool // a session of reactions; they have a separate worker
	begin     *value.Map
	pillar    *value.Map // pillar passed to the last call of SetPillar
	worker    *worker
	broken    bool
	once      sync.Once
	// altered means that code in the session has changed values that later templates see, see the
	// method Altered.
	altered bool
}

// Session waits for a worker and prepares it for the minion m. ctx bounds the wait.
func (p *Pool) Session(ctx context.Context, m Minion) (*Session, error) {
	kind := "pillar"
	if m.Master {
		kind = "master"
	}

	s := &Session{
		pool: p,
		begin: value.NewMap("op", "begin", "kind", kind, "id", m.ID, "grains", m.Grains.Clone(), "saltenv", m.Saltenv,
			"pillarenv", m.Pillarenv, "pillar", m.Pillar.Clone(), "opts", m.Opts.Clone(), "watch", m.Watch),
	}

	w, err := p.acquire(ctx, false)
	if err != nil {
		return nil, err
	}

	s.worker = w
	if m.Needed != nil && !m.Needed() {
		s.once.Do(func() { p.release(w, false, false) })
		return nil, ErrNotNeeded
	}

	if err := s.prepare(ctx); err != nil {
		return nil, err
	}

	return s, nil
}

// prepare prepares the worker for the minion. If it returns an error, it has closed the session.
func (s *Session) prepare(ctx context.Context) error {
	if _, err := s.callWorker(ctx, nil); err != nil {
		s.Close()
		return fmt.Errorf("begin a renderer session: %w", err)
	}
	return nil
}

// Close returns the worker to the pool.
func (s *Session) Close() {
	s.once.Do(func() {
		if !s.broken {
			if _, err := s.worker.callOnce(s.pool.ctx, s.pool.cfg.RequestTimeout, value.NewMap("op", "end")); err != nil {
				s.broken = true
			}
		}
		s.pool.release(s.worker, s.broken, s.isReactor)
	})
}

// callWorker sends a request to the worker and returns the reply. If the worker dies, callWorker
// sends the request once more, to a new worker. If req is nil, callWorker only begins the session
// on the worker.
func (s *Session) callWorker(ctx context.Context, req *value.Map) (*value.Map, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.pool.ctx, cancel)()

	for try := 0; ; try++ {
		reply, err := s.attempt(ctx, req, try > 0 || req == nil)
		var f *Failure
		if err == nil || errors.As(err, &f) {
			s.altered = s.altered || f != nil && f.altered || reply.Bool("altered")
			return reply, err
		}

		s.broken = true
		if s.pool.ctx.Err() != nil {
			return nil, errClosed
		}
		if try > 0 || !transient(err) {
			return nil, err
		}

		s.pool.updateStats(func(st *Stats) { st.Retries++ })
		s.pool.cfg.Log.Warn("a renderer died; trying once more", "minion", s.begin.Str("id"), "error", err)
		s.worker.discard()
		w, err := s.pool.forkWorker(ctx)
		if err != nil {
			return nil, err
		}

		s.worker, s.broken = w, false
	}
}

func (s *Session) attempt(ctx context.Context, req *value.Map, begin bool) (*value.Map, error) {
	timeout := s.pool.cfg.RequestTimeout
	if begin {
		b := s.begin
		if s.pillar != nil {
			b = b.Clone()
			b.Set("pillar", s.pillar)
		}
		if reply, err := s.worker.callOnce(ctx, timeout, b); err != nil || req == nil {
			return reply, err
		}
	}
	return s.worker.callOnce(ctx, timeout, req)
}

// Template describes a file or text to render.
type Template struct {
	Path    string // path of the file; "": render Text
	Text    string
	SLS     string // dotted name, for the variables sls and tpl…
	Saltenv string
	Pillar  bool       // search imports in pillar_roots
	Fresh   bool       // render as Salt does: use no kept code, and read YAML in Python
	Sealed  bool       // the renderer gpg opens nothing: ciphertext stays as it is
	Context *value.Map // further variables for the template
}

// Render renders and compiles a template (salt/template.py compile_template). If the template is
// faulty, the error is a *Failure. The value may be shared with other callers and must not be changed.
func (s *Session) Render(ctx context.Context, t Template) (any, error) {
	req := t.request()
	fresh := t.Fresh || s.pool.cfg.Fresh
	req.Set("fresh", fresh)
	req.Set("text_of_yaml", !fresh)
	reply, err := s.callWorker(ctx, req)
	if err != nil {
		return nil, err
	}
	if _, isText := reply.Get("text"); isText {
		return s.readYAML(ctx, t, reply.Str("text"))
	}
	return reply.Value("value"), nil
}

func (t Template) request() *value.Map {
	req := value.NewMap("op", "render", "sls", t.SLS, "saltenv", t.Saltenv, "pillar_rend", t.Pillar,
		"context", t.Context.Clone())
	if t.Sealed {
		req.Set("sealed", true)
	}
	if t.Path != "" {
		req.Set("path", t.Path)
	} else {
		req.Set("text", t.Text)
	}
	return req
}

// Unshareable is the reason why the result of a template may be used for one minion only.
type Unshareable string

// Error returns the reason.
func (u Unshareable) Error() string {
	return "the result is for one minion only: the template " + string(u)
}

// Record renders a file like Render, and also returns the inputs that the result depends on. If the
// error is an Unshareable, the result is valid, but only for this minion.
func (s *Session) Record(ctx context.Context, t Template) (any, memo.Trace, error) {
	req := t.request()
	req.Set("record", true)
	reply, err := s.callWorker(ctx, req)
	if err != nil {
		return nil, memo.Trace{}, err
	}

	v := reply.Value("value")
	if why, ok := reply.Get("unshareable"); ok {
		return v, memo.Trace{}, Unshareable(value.StrMax(why, 200))
	}

	trace, err := memo.ReadTrace(reply)
	if err != nil {
		return v, memo.Trace{}, Unshareable(err.Error())
	}

	return v, trace, nil
}

// Confined renders a file like Record, but refuses a template whose result would be valid for one
// minion only: nothing of it has run that has an effect. If the error is an Unshareable or a
// *Failure of the template, the trace is valid: it holds what the template had read before.
func (s *Session) Confined(ctx context.Context, t Template) (any, memo.Trace, error) {
	req := t.request()
	req.Set("confined", true)
	reply, err := s.callWorker(ctx, req)
	if err != nil {
		return nil, memo.Trace{}, err
	}

	trace, err := memo.ReadTrace(reply)
	if err != nil {
		return nil, memo.Trace{}, err
	}

	if why, ok := reply.Get("unshareable"); ok {
		return nil, trace, Unshareable(value.StrMax(why, 200))
	}
	if failure := reply.Map("failure"); failure != nil {
		return nil, trace, &Failure{Message: failure.Str("error"), Kind: failure.Str("kind")}
	}
	return reply.Value("value"), trace, nil
}

// Altered reports whether code in the session has changed values that later templates see: the
// grains, the pillar or options. If s is nil, it returns false.
func (s *Session) Altered() bool { return s != nil && s.altered }

// SetPillar sets the pillar that later templates see.
func (s *Session) SetPillar(ctx context.Context, pillar *value.Map) error {
	s.pillar = pillar
	_, err := s.callWorker(ctx, value.NewMap("op", "pillar", "pillar", pillar))
	return err
}

// ExtPillar runs entries of the configured ext_pillar chain on a pillar. It returns the resulting
// pillar and Salt's error texts. output is what the command of the entries has said; nil: it has not
// run, and Salt's module runs it.
func (s *Session) ExtPillar(
	ctx context.Context,
	pillar *value.Map,
	entries []any,
	output []byte,
	extra *value.Map,
) (*value.Map, []string, error) {
	s.pillar = pillar
	req := value.NewMap("op", "ext_pillar", "pillar", pillar, "entries", entries, "extra", extra.Clone())
	if output != nil {
		req.Set("output", output)
	}
	return s.mapResult(ctx, req)
}

// Whole compiles and returns the complete pillar with Salt's Pillar class, including the top files.
// git holds the directories of each git entry in ext_pillar, see [gitpillar.ForPython].
func (s *Session) Whole(ctx context.Context, override, extra *value.Map, git []any) (*value.Map, error) {
	m, _, err := s.mapResult(ctx,
		value.NewMap("op", "whole", "override", override.Clone(), "extra", extra.Clone(), "git_pillars", git))
	return m, err
}

// Decrypt runs the configured decrypt_pillar on a pillar, and returns the result and Salt's error
// texts.
func (s *Session) Decrypt(ctx context.Context, pillar *value.Map) (*value.Map, []string, error) {
	return s.mapResult(ctx, value.NewMap("op", "decrypt", "pillar", pillar))
}

func (s *Session) mapResult(ctx context.Context, req *value.Map) (*value.Map, []string, error) {
	reply, err := s.callWorker(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	errs := reply.Texts("errors")
	m := reply.Map("value")
	if m == nil {
		return nil, errs, &Failure{Message: "the result is not a dictionary"}
	}
	return m, errs, nil
}

// Tops runs the configured master_tops modules for a minion with the given options. It leaves out
// modules that fail, and returns the texts of their errors.
func (p *Pool) Tops(ctx context.Context, minionOpts *value.Map) (*value.Map, []string, error) {
	s, err := p.Session(ctx, Minion{Master: true})
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	return s.mapResult(ctx, value.NewMap("op", "tops", "minion_opts", minionOpts.Clone()))
}
