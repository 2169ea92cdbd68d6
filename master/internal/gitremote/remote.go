package gitremote

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"saltern/master/internal/git"
	"saltern/master/value"
)

// Role is the use of a remote: for files or for pillars.
type Role string

// The roles. A role is named after the prefix of its options.
const (
	Files  Role = "gitfs"
	Pillar Role = "git_pillar"
)

// Env holds the settings of one environment (option saltenv of gitfs). A nil field means that the
// setting is not given.
type Env struct{ Ref, Root, Mountpoint *string }

// Remote is a remote with its options. The fields have the names of the options.
type Remote struct {
	git.Remote
	// ID is the entry as configured: a URL, or a branch and a URL. It may contain a password.
	ID   string
	Name string

	Base, Fallback, Root, Mountpoint string
	AllSaltenvs                      *string // nil: not set
	DisableMapping                   bool
	RefTypes                         []string
	Whitelist, Blacklist             []string
	Saltenv                          map[string]Env // the option saltenv of the remote's entry
	Branch, Env                      string         // only for pillars
}

// Defaults holds the options of a role that apply to all its remotes.
type Defaults struct {
	Remote
	Global map[string]Env // option gitfs_saltenv
}

// authParams returns the names of the options that both roles have (salt/utils/gitfs.py
// AUTH_PARAMS).
func authParams() []string {
	return []string{"user", "password", "pubkey", "privkey", "passphrase", "insecure_auth"}
}

// params returns the names of the options that a remote of the role may have.
func (r Role) params() []string {
	own := []string{"base", "fallback", "root", "ssl_verify", "refspecs", "proxy", "ref_types",
		"disable_saltenv_mapping", "depth", "name", "mountpoint", "all_saltenvs"}
	if r == Files {
		own = append(own, "saltenv_whitelist", "saltenv_blacklist", "update_interval", "saltenv")
	} else {
		own = append(own, "env")
	}
	return append(own, authParams()...)
}

// Parse parses one entry of the list of remotes: a text, or a map with a single key.
func (d *Defaults) Parse(role Role, entry any) (r Remote, err error) {
	r = d.Remote
	r.Refspecs, r.RefTypes = slices.Clone(r.Refspecs), slices.Clone(r.RefTypes)
	var own *value.Map
	switch v := entry.(type) {
	case string:
		r.ID = v
	case *value.Map:
		if v.Len() != 1 {
			return r, fmt.Errorf("%s: an entry with options is one URL, a colon, and a list below it", role)
		}

		for k, opts := range v.All() {
			r.ID, _ = k.(string)
			if own, err = flattenMaps(opts); err != nil || own.Len() == 0 {
				return r, fmt.Errorf("%s: remote %s: what follows the colon is not a list of options; without options there is no colon",
					role, r.urlForMessage())
			}
		}
	}

	if r.ID == "" {
		return r, fmt.Errorf("%s: a remote is a text", role)
	}

	r.splitBranch(role)
	for k, v := range own.All() {
		name, _ := k.(string)
		if !slices.Contains(role.params(), name) {
			return r, fmt.Errorf("%s: remote %s: there is no option %.60q; there are %s", role, r.urlForMessage(),
				name, strings.Join(role.params(), ", "))
		}

		if err := r.setOption(name, v); err != nil {
			return r, fmt.Errorf("%s: remote %s: option %s: %w", role, r.urlForMessage(), name, err)
		}
	}

	if _, base := own.Get("base"); base && role == Pillar && r.Branch != "__env__" {
		return r, fmt.Errorf("%s: remote %s: base goes with the branch __env__ only", role, r.urlForMessage())
	}

	if err := r.finish(); err != nil {
		return r, fmt.Errorf("%s: remote %s: %w", role, r.urlForMessage(), err)
	}

	return r, nil
}

// splitBranch splits the entry of a git pillar into its branch and its URL (get_url).
func (r *Remote) splitBranch(role Role) {
	r.URL = r.ID
	if role == Pillar {
		if branch, url, ok := cutSpace(r.ID); ok {
			r.Branch, r.URL = branch, url
		}
	}
}

func cutSpace(s string) (before, after string, ok bool) {
	s = strings.TrimSpace(s)
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return s, "", false
	}
	return s[:i], strings.TrimSpace(s[i:]), true
}

// urlForMessage returns the URL without its password, for a message.
func (r *Remote) urlForMessage() string {
	url := r.URL
	if url == "" {
		_, url, _ = cutSpace(r.ID)
	}
	if i, j := strings.Index(url, "://"), strings.LastIndex(url, "@"); i >= 0 && j > i {
		url = url[:i+3] + url[j+1:]
	}
	return fmt.Sprintf("%.200q", url)
}

// setOption sets one option of a remote.
func (r *Remote) setOption(name string, v any) (err error) {
	if text := r.textOption(name); text != nil {
		*text = Text(v)
		return nil
	}
	if list := r.listOption(name); list != nil {
		*list = Texts(v)
		return nil
	}

	switch name {
	case "all_saltenvs":
		s := Text(v)
		r.AllSaltenvs = &s
	case "insecure_auth":
		r.InsecureAuth = value.Truth(v)
	case "ssl_verify":
		r.SkipVerify = !value.Truth(v)
	case "disable_saltenv_mapping":
		r.DisableMapping = value.Truth(v)
	case "depth":
		var n int64
		if n, err = number(v); err == nil {
			r.Depth = int(n)
		}
	case "update_interval":
		var n int64
		if n, err = number(v); err == nil && n > 0 { // 0 means the default, as in Salt
			r.Interval = time.Duration(n) * time.Second
		}
	case "saltenv":
		r.Saltenv, err = Envs(v)
	}

	return err
}

// textOption returns a pointer to the field for a text option, or nil if there is no such option.
func (r *Remote) textOption(name string) *string {
	return map[string]*string{
		"base":       &r.Base,
		"env":        &r.Env,
		"fallback":   &r.Fallback,
		"mountpoint": &r.Mountpoint,
		"name":       &r.Name,
		"passphrase": &r.Passphrase,
		"password":   &r.Password,
		"privkey":    &r.PrivKey,
		"proxy":      &r.Proxy,
		"pubkey":     &r.PubKey,
		"root":       &r.Root,
		"user":       &r.User,
	}[name]
}

// listOption returns a pointer to the field for a list option, or nil if there is no such option.
func (r *Remote) listOption(name string) *[]string {
	return map[string]*[]string{
		"ref_types":         &r.RefTypes,
		"refspecs":          &r.Refspecs,
		"saltenv_blacklist": &r.Blacklist,
		"saltenv_whitelist": &r.Whitelist,
	}[name]
}

// finish checks the options and normalises the paths.
func (r *Remote) finish() (err error) {
	for i, t := range r.RefTypes {
		if r.RefTypes[i] = strings.ToLower(t); !slices.Contains([]string{"branch", "tag", "sha"}, r.RefTypes[i]) {
			return fmt.Errorf("ref_types has %.20q: there are branch, tag and sha", t)
		}
	}

	if r.Root, err = cleanFolder(r.Root); err != nil {
		return fmt.Errorf("root: %w", err)
	}

	if r.Mountpoint, err = cleanFolder(stripProto(r.Mountpoint)); err != nil {
		return fmt.Errorf("mountpoint: %w", err)
	}

	// Collect the commit ids in the configuration, so that these commits are fetched.
	refs := []string{r.Base, r.Fallback, r.Branch}
	if r.AllSaltenvs != nil {
		refs = append(refs, *r.AllSaltenvs)
	}

	for _, name := range slices.Sorted(maps.Keys(r.Saltenv)) {
		if ref := r.Saltenv[name].Ref; ref != nil {
			refs = append(refs, *ref)
		}
	}

	for _, ref := range refs {
		if IsCommit(ref) && slices.Contains(r.RefTypes, "sha") && !slices.Contains(r.Commits, ref) {
			r.Commits = append(slices.Clone(r.Commits), ref)
		}
	}

	return r.Check()
}
