package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"saltern/internal/command"
)

// Change is the last commit that has touched a file, or a line of it.
type Change struct {
	Commit string
	Author string // name of the author; anybody may have written it
	Time   time.Time
	// Cut means that older commits were not fetched: the change may be in one of them.
	Cut bool
}

// historyTakes bounds one search in the history of a repository.
const historyTakes = 5 * time.Second

// historyNice is how much less than the master a search counts for the scheduler: it may read all commits.
const historyNice = 5

// LastChange returns the last commit that has touched a file of a commit. path is relative to the tree. With a
// line (the first is 1) it is the last commit that has touched this line. It fetches nothing.
func (r *Repository) LastChange(ctx context.Context, commit, path string, line int) (Change, error) {
	what := fmt.Errorf("find the last change of %.200q", path)
	if strings.Trim(commit, "0123456789abcdef") != "" || len(commit) < 40 || !filepath.IsLocal(path) {
		return Change{}, fmt.Errorf("%w: the commit or the path is invalid", what)
	}

	argv := append(localOptions(r.bareDir()), "-c", "blame.ignoreRevsFile=", "-c", "mailmap.file=", "-c", "mailmap.blob=",
		"--literal-pathspecs")
	if line == 0 {
		argv = append(argv, "log", "-1", "--no-mailmap", "--no-show-signature", "--format=%H%n%ct%n%an", commit, "--", path)
	} else {
		at := strconv.Itoa(line)
		argv = append(argv, "blame", "--porcelain", "-L", at+","+at, commit, "--", path)
	}
	const maxAnswer = 256 << 10 // blame's answer has the line itself
	exec := command.Exec{Limit: historyTakes, MaxOutput: maxAnswer, Env: localEnv(), Nice: historyNice}
	out, err := runGitBy(ctx, exec, argv)
	if err != nil {
		return Change{}, fmt.Errorf("%w: %w", what, err)
	}

	parse := parseLog
	if line != 0 {
		parse = parseBlame
	}
	change, err := parse(string(out))
	if err != nil {
		return Change{}, fmt.Errorf("%w: %w", what, err)
	}
	change.Cut = r.isCut(change.Commit)
	return change, nil
}

var errHistory = errors.New("git names no commit")

// parseLog reads the answer of git log: the commit, its time and its author, one a line.
func parseLog(text string) (c Change, err error) {
	parts := strings.SplitN(text, "\n", 3)
	if len(parts) < 3 {
		return c, errHistory
	}
	c.Commit = parts[0]
	c.Author = strings.TrimSpace(parts[2])
	return c, c.setTime(parts[1])
}

// parseBlame reads the answer of git blame --porcelain for one line.
func parseBlame(text string) (c Change, err error) {
	err = errHistory
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "\t") { // the line of the file
			break
		}
		name, v, _ := strings.Cut(line, " ")
		switch {
		case c.Commit == "":
			c.Commit = name
		case name == "author":
			c.Author = v
		case name == "committer-time":
			err = c.setTime(v)
		}
	}
	return c, err
}

func (c *Change) setTime(seconds string) error {
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return errHistory
	}
	c.Time = time.Unix(n, 0)
	return nil
}

// isCut reports whether the parents of a commit were not fetched.
func (r *Repository) isCut(commit string) bool {
	text, err := os.ReadFile(filepath.Join(r.bareDir(), "shallow"))
	return err == nil && commit != "" && strings.Contains(string(text), commit)
}
