// Command soak keeps a load balancer under load and abuse for a long time and
// then asks whether anything was left behind: descriptors and memory must be
// back where they were, and no well-behaved client may have lost anything
// outside the faults that the program makes itself.
//
// It starts `applianced lb` and three masters (real ZMTP listeners, processes of
// their own) and then, in turn:
//
//  1. settles: subscribers are held, everything else has run for a while and
//     has ended; descriptors and proportional memory of the balancer are noted,
//  2. soaks: kept and short requests, big answers, broadcasts, slow readers,
//     byte-by-byte greetings, half-open connections, resets in every state,
//     garbage; meanwhile masters are killed, stopped and drained by turns,
//  3. settles again and compares.
//
// Exit code 1 when something differs. It needs no root. See `make soak-lb`.
package main
