// Package cli talks to glusterd through the gluster command. It runs the command with a deadline,
// parses the XML of the answers within bounds, and sorts refusals into those that mean "already
// done", "try again" and "no".
//
// Three facts about gluster 10 determine its design. With --xml the exit status says nothing (a
// refusal has opRet -1 and exit 0). Some answers are plain text in spite of --xml. And nearly every
// refusal has the same number (30800), so its text must be parsed. The only safe reaction to an
// unknown text is to observe the state again.
//
// [Client] has a method for each command. It runs the commands with a [command.Runner], which is
// [command.Exec] outside of tests.
package cli
