package observe

import (
	"net/netip"
	"strings"
	"syscall"

	"saltern/supervisor/internal/probe"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/status"
)

// fromLastLine derives the cause of a crash from the last line that the child wrote.
func fromLastLine(i service.Info) []status.Finding {
	l := strings.ToLower(i.LastLine)
	clipped := status.Clip(i.LastLine)
	if f, ok := errnoFinding(i.Name, i.LastLine); ok {
		f.Cause = clipped
		return []status.Finding{f}
	}

	switch {
	case i.Name == status.MasterService && i.LastExit == exitConfig:
		return []status.Finding{{Code: status.MasterConfig, Cause: clipped}}
	case strings.Contains(l, ".pem") && (strings.Contains(l, "permission denied") || strings.Contains(l, "key")):
		return []status.Finding{{Code: status.KeyUnreadable, Subject: "of the master", Cause: clipped}}
	case strings.Contains(l, "config") &&
		(strings.Contains(l, "error") || strings.Contains(l, "invalid") || strings.Contains(l, "expected")):
		return []status.Finding{{Code: status.MasterConfig, Cause: clipped}}
	}

	return nil
}

// errnoFinding returns the finding for a line that contains the text of an errno about a listening
// address or a disk. ok is false for other lines.
func errnoFinding(child, line string) (f status.Finding, ok bool) {
	errno := errnoIn(strings.ToLower(line))
	ofAddress := errno == syscall.EADDRINUSE || errno == syscall.EADDRNOTAVAIL
	address := wordIn(line, child, isAddress)
	listened := address != child && (strings.Contains(line, "bind:") || strings.Contains(line, "listen "))
	switch {
	case errno == 0:
		return f, false
	case ofAddress, listened && probe.IsOfListening(errno):
		return probe.PortFinding(address, errno), true
	case probe.IsOfDisk(errno):
		return probe.FileFinding(wordIn(line, child, func(word string) bool { return strings.HasPrefix(word, "/") }),
			errno), true
	}

	return f, false
}

// maxErrno is the largest errno of Linux.
const maxErrno = syscall.Errno(133)

// errnoIn returns the errno whose text is contained in a line, which must be in lower case. If the
// line contains several, errnoIn returns the one with the longest text; if it contains none, 0.
func errnoIn(line string) (found syscall.Errno) {
	length := 0
	for errno := syscall.Errno(1); errno <= maxErrno; errno++ {
		text := strings.ToLower(errno.Error())
		if len(text) > length && strings.Contains(line, text) {
			found, length = errno, len(text)
		}
	}
	return found
}

// wordIn returns the first word of a line for which wanted returns true, without the punctuation
// around the word. If there is no such word, it returns fallback.
func wordIn(line, fallback string, wanted func(string) bool) string {
	for word := range strings.FieldsSeq(line) {
		if word = strings.Trim(word, `:,;"'()`); wanted(word) {
			return word
		}
	}
	return fallback
}

func isAddress(word string) bool {
	_, err := netip.ParseAddrPort(word)
	return err == nil
}
