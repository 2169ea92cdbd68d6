package console

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"saltern/internal/printable"
	"saltern/master/keys"
	"saltern/master/runner"
	"saltern/master/value"
)

const (
	maxEnvs    = 100
	maxRemotes = 50
	maxRefs    = 10       // branches and tags that are shown of one remote
	maxFolders = 20       // parent folders that are linked
	filesPage  = 200      // names on a page
	maxFile    = 64 << 10 // bytes of a file that are shown
	maxPath    = 4096     // bytes of a requested path
)

// fileEntry is a name in a folder, and the URL to which it links.
type fileEntry struct {
	Name, To string
	Folder   bool
}

// remote is a git remote in the state that this master serves.
type remote struct {
	URL, Fault   string
	Fetched, Age moment
	Refs         []ref
	MoreRefs     int64
	Same         []string // masters that serve the same commits of the remote as this master
	Differs      []string // masters that serve other commits
}

type ref struct{ Name, Commit string }

type filesOverview struct {
	Envs    []fileEntry
	Env     string
	Up      []fileEntry // the folders above this one, from the root down
	Folder  string      // path of the folder; "" for the root
	Entries []fileEntry
	More    int64 // number of names that the master left out of its answer
	pager
	Listed    bool // the user may see the list of files
	Remotes   []remote
	MoreGit   int
	Node      string // name of the node whose master serves the remotes; "" if it is not known
	MayGit    bool
	MayPillar bool
	MayDiff   bool
}

func showFiles(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d := filesOverview{
		Listed:    v.mayCall("runner", "files.list"),
		MayGit:    v.mayCall("runner", "git.status"),
		MayPillar: v.mayCall("runner", "pillar.show_pillar"),
		MayDiff:   v.mayDiff(),
	}
	if !d.Listed && !d.MayGit {
		return Answer{}, &Refusal{http.StatusUnauthorized,
			"Files take the runner files.list, git remotes git.status: external_auth permits you neither."}
	}

	if d.Listed {
		if err := d.listFolder(c, ctx, v); err != nil {
			return Answer{}, err
		}
	}

	if d.MayGit {
		got, err := v.runCommand(ctx, "runner", "git.status")
		if isUnauthorized(err) {
			d.MayGit, err = false, nil
		}

		if err != nil {
			return Answer{}, err
		}

		m, _ := got.(*value.Map)
		d.Remotes, d.MoreGit = remotesOf(m, c.cfg.Now())
		if s := v.Master.Status(); s != nil {
			d.Node = briefName(s.ID)
		}
	}

	return c.render(v, "files", http.StatusOK, page{Title: "Files", Data: d})
}

// listFolder fills in the content of the folder that the query names.
func (d *filesOverview) listFolder(c *Console, ctx context.Context, v *visit) error {
	env := cutText(v.query.Get("env"), maxName)
	folder := strings.Trim(cutText(v.query.Get("dir"), maxPath), "/")
	if env == "" {
		env = "base"
	}

	got, err := v.runCommand(ctx, "runner", "files.list", "saltenv", env, "prefix", folder)
	if err != nil {
		return err
	}

	m, ok := got.(*value.Map)
	if !ok {
		return &Refusal{http.StatusBadGateway, "The master cannot list its files: " + briefName(value.StrMax(got, maxName))}
	}

	at := func(env, dir string) string {
		return c.base + "/files?" + url.Values{"env": {env}, "dir": {dir}}.Encode()
	}
	d.Env, d.Folder = briefName(env), briefName(folder)

	for _, e := range m.Texts("envs")[:min(len(m.Texts("envs")), maxEnvs)] {
		d.Envs = append(d.Envs, fileEntry{briefName(e), at(e, ""), e == env})
	}

	d.Up = append(d.Up, fileEntry{Name: briefName(env), To: at(env, "")})
	parts := strings.Split(folder, "/")
	for i, part := range parts[:min(len(parts), maxFolders)] {
		if part != "" {
			d.Up = append(d.Up, fileEntry{Name: briefName(part), To: at(env, strings.Join(parts[:i+1], "/"))})
		}
	}

	dirs, names := m.Texts("dirs"), m.Texts("files")
	total, _ := m.Int("of")
	d.More = max(0, total-int64(len(dirs)+len(names)))
	var lo, hi int
	lo, hi, d.pager = pageOf(len(dirs)+len(names), filesPage, c.base+"/files", v.query)
	for i := lo; i < hi; i++ {
		if i < len(dirs) {
			d.Entries = append(d.Entries, fileEntry{briefName(dirs[i]), at(env, path.Join(folder, dirs[i])), true})
			continue
		}
		n := names[i-len(dirs)]
		to := c.base + "/file?" + url.Values{"env": {env}, "path": {strings.TrimPrefix(folder+"/"+n, "/")}}.Encode()
		d.Entries = append(d.Entries, fileEntry{Name: briefName(n), To: to})
	}

	return nil
}

// remotesOf returns the remotes in the answer of git.status, at most maxRemotes of them. more is
// the number of remotes left out.
func remotesOf(m *value.Map, now time.Time) (out []remote, more int) {
	for _, u := range m.Keys() {
		if len(out) == maxRemotes {
			return out, m.Len() - maxRemotes
		}

		x := m.Map(u)
		r := remote{URL: briefName(u)}
		if t, err := time.Parse(time.RFC3339, x.Str("changed")); err == nil {
			r.Age = momentAt(now, t)
		}

		if t, err := time.Parse(time.RFC3339, x.Str("fetched")); err == nil {
			r.Fetched = momentAt(now, t)
		}

		if f := x.Map("fault"); f.Len() > 0 {
			r.Fault = briefName(f.Str("text")) + " (since " + briefName(f.Str("since")) + ")"
		}

		refs := x.Map("refs")
		r.MoreRefs, _ = x.Int("more_refs")
		for i, n := range refs.Keys() {
			if i == maxRefs {
				r.MoreRefs += int64(refs.Len() - maxRefs)
				break
			}
			r.Refs = append(r.Refs, ref{briefName(n), briefName(cutText(refs.Str(n), 12))})
		}

		others := x.Map("other_masters")
		for _, peer := range others.Keys() {
			switch same := others.Map(peer).Value("same") == true; {
			case same && len(r.Same) < maxRefs:
				r.Same = append(r.Same, briefName(peer))
			case !same && len(r.Differs) < maxRefs:
				r.Differs = append(r.Differs, briefName(peer))
			}
		}

		out = append(out, r)
	}

	return out, 0
}

type filePage struct {
	Env, Path, Backend string
	Size               int64
	Binary             bool
	Text               boundText
	Folder             string // URL of the folder that contains the file
}

func showFile(c *Console, ctx context.Context, v *visit) (Answer, error) {
	env, file := cutText(v.query.Get("env"), maxName), v.query.Get("path")
	if file == "" || len(file) > maxPath {
		return Answer{}, &Refusal{http.StatusBadRequest, "That is not the name of a file."}
	}

	got, err := v.runCommand(ctx, "runner", "files.show", "path", file, "saltenv", env)
	if err != nil {
		return Answer{}, err
	}

	m, ok := got.(*value.Map)
	if !ok {
		return Answer{}, &Refusal{http.StatusNotFound, "Minions are served no such file in that environment."}
	}

	d := filePage{
		Env:     briefName(m.Str("saltenv")),
		Path:    briefName(m.Str("path")),
		Backend: briefName(m.Str("backend")),
		Binary:  m.Value("binary") == true,
	}

	d.Size, _ = m.Int("size")
	folder := path.Dir(m.Str("path"))
	if folder == "." {
		folder = ""
	}

	d.Folder = c.base + "/files?" + url.Values{"env": {m.Str("saltenv")}, "dir": {folder}}.Encode()
	left, _ := m.Int("cut")
	text := m.Str("text")
	part := cutText(text, maxFile)
	d.Text = boundText{printable.Text(part), int(left) + len(text) - len(part)}

	return c.render(v, "file", http.StatusOK, page{Title: d.Path, Data: d})
}

type pillarPage struct {
	ID     string
	Errors []boundText
	Values []grain
	More   int
}

// showPillar shows the pillar of a minion. Only this page gets the result: neither an event nor the
// job cache contains it.
func showPillar(c *Console, ctx context.Context, v *visit) (Answer, error) {
	id := v.query.Get("id")
	if keys.ValidID(id) != nil {
		return Answer{}, &Refusal{http.StatusBadRequest, "That is not the id of a minion."}
	}

	got, err := v.runCommand(ctx, "runner", "pillar.show_pillar", "minion", id, runner.Alone, true)
	if err != nil {
		return Answer{}, err
	}

	m, ok := got.(*value.Map)
	if !ok {
		return Answer{}, &Refusal{http.StatusBadGateway,
			"The master cannot render the pillar: " + briefName(value.StrMax(got, maxName))}
	}

	d, b := pillarPage{ID: id}, newBudget()
	for _, e := range m.List("_errors") {
		d.Errors = append(d.Errors, b.boundedText(value.StrMax(e, maxText)))
	}

	d.Values, d.More = values(m, b, "_errors")
	return c.render(v, "pillar", http.StatusOK, page{Title: "Pillar of " + briefName(id), Data: d})
}
