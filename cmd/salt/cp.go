package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	op "saltern/cmd/salt/optparse"
	"saltern/master/client"
	"saltern/master/value"
)

func (e *env) cpParser() *op.Parser {
	p := e.parser("salt-cp", "[options] '<target>' SOURCE DEST", "Copy files to many minions.")
	p.Options = append(p.Options, timeoutOption(5))
	p.Groups = append(targetOptions(false), outputOptions("salt-cp"), logOptions("-l", "log_file"),
		op.Group{Title: "File Options", Options: []op.Option{
			{
				Names:   []string{"-C", "--chunked"},
				Dest:    "chunked",
				Default: false,
				Help:    "Send files in parts: for large files and whole directories.",
			},
			{
				Names:   []string{"-n", "--no-compression"},
				Dest:    "gzip",
				Kind:    op.Unset,
				Default: true,
				Help:    "Send parts without compression.",
			},
		}})

	return p
}

// cpCall is a call of salt-cp (salt/cli/cp.py).
type cpCall struct {
	*tool
	c    *client.Client
	req  client.Request
	src  []string
	dest string
}

func (e *env) saltCP(ctx context.Context, words []string) int {
	p := e.cpParser()
	t, code := e.startTool(p, words, false)
	if t == nil {
		return code
	}
	s := &cpCall{tool: t}
	return t.exitCode(s.copyAll(ctx))
}

func (s *cpCall) copyAll(ctx context.Context) error {
	typ, err := targetType(s.values, s.optionParser.Groups)
	if err != nil {
		return err
	}
	if len(s.args) <= 1 {
		fmt.Fprint(s.stdout, s.optionParser.Help(s.columns))
		return op.Error("Insufficient arguments")
	}

	if err := s.emptyOutputFile(); err != nil {
		return err
	}

	s.req.Target, s.req.TargetType = s.args[0], "glob"
	if typ != "" {
		s.req.TargetType = typ
	}

	if typ == "list" {
		s.req.Target = splitList(s.args[0], false)
	}

	for _, f := range s.args[1 : len(s.args)-1] {
		abs, err := filepath.Abs(f)
		if err != nil {
			return err
		}

		if real, err := filepath.EvalSymlinks(abs); err == nil {
			abs = real
		}

		s.src = append(s.src, abs)
	}

	s.dest = s.args[len(s.args)-1]
	s.req.Timeout = time.Duration(max(s.values.Int("timeout"), 1)) * time.Second
	s.c = s.client(s.req.Timeout)
	defer s.c.Close()

	var ret *value.Map
	if s.values.Bool("chunked") {
		ret, err = s.chunked(ctx)
	} else {
		ret, err = s.sendInOneJob(ctx)
	}

	if err != nil {
		return err
	}

	return s.display(ret, "nested", 0, s.outputOptions())
}

// runOnMinions runs a function on the minions and returns their answers by id. The answer of a
// minion that does not answer is a text.
func (s *cpCall) runOnMinions(ctx context.Context, fun string, arg []any) (*value.Map, error) {
	req := s.req
	req.Fun, req.Arg = fun, arg
	ret := value.NewMap()
	err := s.c.Run(ctx, req, nil, func(r client.Return) bool {
		ret.Set(r.ID, r.Ret)
		return true
	})

	switch {
	case err == client.ErrNoMinions:
		s.println(err.Error())
		return ret, nil
	case err == client.ErrNoJob:
		return ret, nil
	}

	return ret, err
}

// sendInOneJob sends all files in one job and returns the minions' answers. The files must be text.
func (s *cpCall) sendInOneJob(ctx context.Context) (*value.Map, error) {
	files := value.NewMap()
	for _, f := range s.src {
		st, err := os.Stat(f)
		switch {
		case err == nil && st.IsDir():
			s.println(f + " is a directory, only files are supported in non-chunked mode. Use \"--chunked\" command line argument.")
			return nil, exit(exitGeneric)
		case err != nil || !st.Mode().IsRegular():
			continue // skip everything but files and directories, as Salt does
		}

		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		if !utf8.Valid(b) {
			fmt.Fprintf(s.stderr, "%s is no text in UTF-8. Use \"--chunked\" to send it.\n", f)
			return nil, exit(exitGeneric)
		}

		files.Set(f, string(b))
	}

	return s.runOnMinions(ctx, "cp.recv", []any{files, s.dest})
}

// source is a file to send in parts.
type source struct {
	path string
	mode int64
}

// findFiles returns the files below a path, and the empty directories.
func findFiles(path string) (files []source, emptyDirs []string, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}

	if !st.IsDir() {
		if !st.Mode().IsRegular() {
			return nil, nil, nil
		}

		mode := int64(st.Mode().Perm())
		for bit, n := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
			if st.Mode()&bit != 0 {
				mode |= n
			}
		}

		return []source{{path, mode}}, nil, nil
	}

	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, nil, err
	}
	if len(entries) == 0 {
		return nil, []string{path}, nil
	}

	for _, e := range entries {
		f, d, err := findFiles(filepath.Join(path, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a dangling link is no error
			return nil, nil, err
		}
		files, emptyDirs = append(files, f...), append(emptyDirs, d...)
	}

	return files, emptyDirs, nil
}

func (s *cpCall) chunked(ctx context.Context) (*value.Map, error) {
	var files []source
	var empty []string
	for _, p := range s.src {
		f, d, err := findFiles(p)
		if errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(s.stderr, "%s does not exist\n", p)
			return nil, exit(exitArguments)
		}
		if err != nil {
			return nil, err
		}

		files, empty = append(files, f...), append(empty, d...)
	}

	slices.Sort(empty)
	intoDir := len(empty) > 0 || len(files) > 1 || strings.HasSuffix(s.dest, "/") || strings.HasSuffix(s.dest, `\`)
	ret := value.NewMap()
	for _, f := range files {
		if err := s.sendFile(ctx, f, s.remote(f.path, intoDir), ret); err != nil {
			return nil, err
		}
	}

	for _, d := range empty {
		remote := s.remote(d, intoDir)
		got, err := s.runOnMinions(ctx, "cp.recv_chunked", []any{remote, nil})
		if err != nil {
			return nil, err
		}

		for id, r := range got.All() {
			noteResult(ret, id, remote, r)
		}
	}

	return ret, nil
}

// remote returns the path of a file on the minion.
func (s *cpCall) remote(path string, intoDir bool) string {
	if slices.Contains(s.src, path) {
		if intoDir {
			return pathJoin(s.dest, filepath.Base(path))
		}
		return s.dest
	}
	for _, p := range s.src {
		if rel, ok := strings.CutPrefix(path, strings.TrimSuffix(p, "/")+"/"); ok {
			return pathJoin(s.dest, filepath.Base(p)+"/"+rel)
		}
	}
	return s.dest
}

func pathJoin(dir, name string) string {
	if strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}

func noteResult(ret *value.Map, id any, path string, result any) {
	name, _ := id.(string)
	m := ret.Map(name)
	if m == nil {
		m = value.NewMap()
		ret.Set(name, m)
	}
	m.Set(path, result)
}

// sendFile copies one file in parts. The result of a minion is its first error.
func (s *cpCall) sendFile(ctx context.Context, f source, remote string, ret *value.Map) error {
	fh, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer fh.Close()

	size := max(s.cfg.SaltCPChunkSize, 1)
	buf := make([]byte, size)
	failed := value.NewMap()
	zip := s.values.Bool("gzip")
	for part := 0; ; part++ {
		n, err := io.ReadFull(fh, buf)
		last := err == io.EOF || err == io.ErrUnexpectedEOF
		if err != nil && !last {
			return fmt.Errorf("read %s: %w", f.path, err)
		}
		if n == 0 && part > 0 {
			break
		}

		chunk := buf[:n]
		if zip {
			if chunk, err = compress(chunk); err != nil {
				return err
			}
		}

		got, err := s.runOnMinions(ctx, "cp.recv_chunked",
			[]any{remote, base64.StdEncoding.EncodeToString(chunk), part > 0, zip, f.mode})
		if err != nil {
			return err
		}
		if got.Len() == 0 {
			return s.unsent(remote, part > 0, ret)
		}

		for id, r := range got.All() {
			noteResult(ret, id, remote, r)
			if _, have := failed.GetAny(id); r != true && !have {
				failed.Set(id, r)
			}
		}

		if last {
			break
		}
	}

	for id, r := range failed.All() {
		noteResult(ret, id, remote, r)
	}

	return nil
}

// unsent records for all minions that a part could not be published.
func (s *cpCall) unsent(remote string, partly bool, ret *value.Map) error {
	ids, err := s.matched(s.req.Target, s.req.TargetType)
	if err != nil {
		return err
	}
	msg := "Publish failed."
	if partly {
		msg += " File partially transferred."
	}
	msg += fmt.Sprintf(" It may be necessary to decrease salt_cp_chunk_size (current value: %d)", s.cfg.SaltCPChunkSize)
	for _, id := range ids {
		noteResult(ret, id, remote, msg)
	}
	return nil
}

func compress(b []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
