package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1 // the suite was not run whole; a run that failed is a result
	exitUsage  = 2
)

const usage = `Usage: proxybench suite|backend [flags]

suite    run scenarios through proxies; proxybench suite --help lists the flags
backend  answer on the addresses ADDR,ADDR,... (suite starts it)
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}

	var err error
	switch command {
	case "suite":
		err = suite(ctx, args, stdout, stderr)
	case "backend":
		err = serve(args, stdin, stdout)
	case "-h", "--help", "help":
		fmt.Fprint(stdout, usage)
		return exitOK
	default:
		fmt.Fprint(stderr, usage)
		return exitUsage
	}

	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		fmt.Fprintln(stderr, "proxybench:", err)
		if errors.Is(err, errUsage) {
			return exitUsage
		}
		return exitFailed
	}

	return exitOK
}

// errUsage is wrapped by errors of arguments.
var errUsage = errors.New("usage")
