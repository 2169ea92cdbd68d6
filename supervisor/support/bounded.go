package support

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"saltern/internal/command"
)

// commandTime bounds the time of each program.
const commandTime = 10 * time.Second

// runBounded returns the output of a program, at most maxFile bytes, even if the program fails or
// is killed at limit.
func runBounded(ctx context.Context, limit time.Duration, argv ...string) ([]byte, error) {
	out, err := command.Exec{Limit: limit, MaxOutput: maxFile, Cut: true}.Run(ctx, argv)
	if err == nil && out.Exit != 0 { // the output is returned despite the error
		err = fmt.Errorf("exit status %d", out.Exit)
	}
	return slices.Concat(out.Stdout, out.Stderr), err
}

// checkAnswers returns nil if a directory answers or is missing. A child process lists the
// directory, because a call on a hanging file system cannot be interrupted.
func checkAnswers(ctx context.Context, dir string) error {
	_, err := runBounded(ctx, commandTime, "sh", "-c",
		`for d in "$0" "$0"/pki; do ls -f "$d" >/dev/null 2>&1; done; true`, dir)
	return err
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
