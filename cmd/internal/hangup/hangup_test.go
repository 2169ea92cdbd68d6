package hangup

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
)

const (
	generations   = 4
	generationVar = "HANGUP_TEST_GENERATION"
)

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(generationVar)); err == nil {
		serve(n)
	}
	os.Exit(m.Run())
}

// serve is a service that replaces itself by its next generation at a hangup, and ends after the
// last generation.
func serve(generation int) {
	Outlive()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	if generation == 0 {
		fmt.Println("serves")
	}
	<-hangups

	signal.Stop(hangups)
	if generation == generations {
		os.Exit(0)
	}
	_ = os.Setenv(generationVar, strconv.Itoa(generation+1))
	fmt.Println(Exec("/proc/self/exe", os.Args, os.Environ()))
	os.Exit(1)
}

// TestHangupsDoNotEndAService: a service that gets hangups without a pause, also while it replaces
// itself, while it starts and while it ends, is not killed by one.
func TestHangupsDoNotEndAService(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), generationVar+"=0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	line, err := bufio.NewReader(out).ReadString('\n') // from now on it handles the signal
	if err != nil || line != "serves\n" {
		t.Fatalf("%q %v", line, err)
	}

	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the service ended: %v", err)
			}
			return
		default:
			_ = cmd.Process.Signal(syscall.SIGHUP) // it may have ended meanwhile
		}
	}
}

// TestExecThatFails: after a replacement that failed, SIGHUP still does not end the process.
func TestExecThatFails(t *testing.T) {
	if err := Exec("/nonexistent", nil, nil); err == nil {
		t.Fatal("there is no such program")
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}

	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	<-hangups
}
