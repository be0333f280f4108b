/*
 * A retry of dead letters as a model: it publishes the event of each letter with
 * a mark in one transaction, beside the live stream, and may be interrupted,
 * repeated and run by two processes at once. A pause is an arbitrarily long gap
 * between two steps; a process that was killed is one that never goes on.
 *
 * What is modelled
 *   - two letters, of one event (SAME) or of two; two processes, RUNS commands;
 *   - Kafka: one transactional.id, fencing by "last InitProducerID wins", EndTxn
 *     whose request or reply is lost, an open transaction of another producer
 *     that hides the commits after it;
 *   - the events' topic: recreated under another id, truncated (unless FINITE),
 *     its records deleted by retention (FINITE).
 *
 * Which function carries which step (file in bridge, functions, step)
 *   kafkasink/repair.go      attempt, scanMarks         open: fence, then read the marks
 *   kafkasink/repair.go      Publish                    transact, doubt
 *   deadletter/mark.go       readMarks, find            which marks count, what the topic holds
 *   deadletter/retry.go      one                        each letter
 *
 * Not modelled: the source of an item (its bytes or a page), events that the
 * topic rejects, and marks of older versions.
 *
 * Assertions
 *   ONCE   an event is published once into a topic with one id, unless truncated
 *   THERE  an event that is reported as published, before or now, was published
 *          into the topic that existed when the retry read its marks
 *
 * Variants. Each takes one rule away and must be found: they are the test of
 * this model. TestModel reads this list.
 *   NO_TOPIC_ID     a mark does not name the topic
 *   NO_LOOK         a marked letter is not looked for in a truncated topic
 *   LSO_STALE       that look does not wait for open transactions
 *   READ_FIRST      the marks are read before InitProducerID
 *   NO_FENCE        nobody is fenced
 *   MARK_LATER      the mark is committed after the event
 *   MARK_BEFORE     the mark is committed before the event
 *   NO_DOUBT        in doubt the event is published again without a look
 *   NO_STRANGER     in doubt marks of another process are not looked at
 *   OTHER_SESSION   in doubt the next session may publish into another topic
 *   NO_DUPLICATE    two letters of one event are published both
 *
 * Configurations, to be combined with a variant
 *   SAME, FINITE    see above
 *   RUNS, FAULTS    number of commands, and of lost requests and replies
 */
#ifndef RUNS
#define RUNS 3
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#define LETTERS 2
#define NOBODY 9
#ifdef SAME
#define EVENT(l) 0
#define OTHER(l) (known[1-(l)] != 0)
#else
#define EVENT(l) (l)
#define OTHER(l) false
#endif
#define FAULT (faults > 0) -> faults = faults - 1

/* ---- the topic ---- */
byte topic = 1;                   /* its id */
bool whole = true;                /* nothing was ever deleted in it */
bool held[LETTERS];               /* the event is in it */
byte ever[LETTERS];               /* how often it was published into it */
byte losses = 0;                  /* times that it was made again or truncated */
bool open = false;                /* somebody else's transaction */

/* ---- marks and their transactional.id ---- */
byte mark[LETTERS];               /* id of the topic that it names; 0 is none */
byte by[LETTERS];                 /* by which command */
byte producer = NOBODY;

byte runs = 0, faults = FAULTS, remakes = 1, deletions = 1, opens = 1;

inline put_event() {
  held[EVENT(at)] = true; ever[EVENT(at)] = ever[EVENT(at)] + 1;
  assert(ever[EVENT(at)] <= 1)                         /* ONCE */
}
inline put_mark() { mark[at] = id; by[at] = mine }

inline report() {
  assert(losses != seen || ever[EVENT(at)] > 0)        /* THERE */
}

#ifdef NO_FENCE
#define FENCED false
#else
#define FENCED (producer != me)
#endif

/* somebody else's mark that was not there when the command began */
#define STRANGER(l) (by[l] != was[l] && (l != at || by[l] != mine))

/* EndTxn(commit) */
#define END_TXN(commit, committed) \
  if :: commit; goto committed                         /* the reply arrives */ \
     :: FAULT; commit; goto doubt                      /* the reply is lost */ \
     :: FAULT; goto doubt                              /* the request is lost */ \
  fi

proctype Retry(byte me) {
  byte mine = 0, at = 0, id = 0, session = 0, seen = 0;
  byte known[LETTERS], was[LETTERS];
  bool look = false;

end_command:
  atomic { (runs < RUNS) -> runs = runs + 1; mine = runs; at = 0; look = false }
#ifdef READ_FIRST
  d_step { known[0] = mark[0]; known[1] = mark[1]; was[0] = by[0]; was[1] = by[1] }
  d_step { producer = me; session = topic }
#else
  d_step { producer = me; session = topic }
  atomic {                                             /* the barrier shows what was committed before it */
    if :: FENCED -> goto ended :: else -> skip fi;
    d_step { known[0] = mark[0]; known[1] = mark[1]; was[0] = by[0]; was[1] = by[1] }
  }
#endif
  d_step {                                             /* what the topic keeps */
    id = topic; seen = losses;
    do
    :: (at < LETTERS) ->
#ifdef NO_TOPIC_ID
         look = look || known[at] != 0;
#else
         if :: (known[at] != id) -> known[at] = 0 :: else -> skip fi;
         look = look || known[at] != 0 && !whole;
#endif
         at = at + 1
    :: else -> break
    od;
#ifdef FINITE
    look = false;
#endif
    at = 0
  }
#ifndef NO_LOOK
  if
  :: look ->
#ifdef LSO_STALE
       if :: open -> known[0] = 0; known[1] = 0 :: skip fi;
#endif
       atomic {
#ifndef LSO_STALE
         (!open) ->
#endif
         if :: held[EVENT(0)] -> skip :: else -> known[0] = 0 fi;
         if :: held[EVENT(1)] -> skip :: else -> known[1] = 0 fi
       }
  :: else -> skip
  fi;
#endif

letter:
  if
  :: (at == LETTERS) -> goto ended
  :: (at < LETTERS && known[at] != 0) -> d_step { report(); at = at + 1 }; goto letter
#ifndef NO_DUPLICATE
  :: (at < LETTERS && known[at] == 0 && OTHER(at)) -> d_step { report(); at = at + 1 }; goto letter
  :: (at < LETTERS && known[at] == 0 && !(OTHER(at))) -> skip
#else
  :: (at < LETTERS && known[at] == 0) -> skip
#endif
  fi;

transact:
#ifdef MARK_BEFORE
  atomic { if :: FENCED -> goto ended :: else -> put_mark() fi };
#endif
  atomic {
    if
    :: FENCED -> goto ended
    :: (!FENCED && session != topic) -> goto doubt     /* the topic of the session is gone */
    :: (!FENCED && session == topic) ->
#if defined(MARK_BEFORE) || defined(MARK_LATER)
         END_TXN(put_event(), published)
#else
         END_TXN(put_event(); put_mark(), published)
#endif
    fi
  };

doubt:
  skip;                                                /* another session */
  d_step { producer = me }
  atomic {
    if :: FENCED -> goto ended :: else -> skip fi;
#ifndef OTHER_SESSION
    if :: (topic != session) -> goto ended :: else -> skip fi;
#endif
    session = topic;
#ifndef NO_STRANGER
    if :: (STRANGER(0) || STRANGER(1)) -> goto ended :: else -> skip fi;
#endif
#ifndef NO_DOUBT
    if :: (by[at] == mine) -> goto marked :: else -> skip fi;
#endif
    skip
  };
  goto transact;

published:
#ifdef MARK_LATER
  atomic { if :: FENCED -> goto ended :: else -> put_mark() fi };
#endif
marked:
  skip;
  d_step { was[at] = by[at]; known[at] = id; report(); at = at + 1 };
  goto letter;

ended:
  skip;
  d_step { at = 0; id = 0; session = 0; seen = 0; known[0] = 0; known[1] = 0; was[0] = 0; was[1] = 0; look = false };
  goto end_command
}

proctype World() {
end:
  do
  :: d_step { (remakes > 0) -> remakes = remakes - 1; topic = topic + 1; whole = true; losses = losses + 1;
              held[0] = false; held[1] = false; ever[0] = 0; ever[1] = 0 }
#ifdef FINITE
  :: d_step { (deletions > 0) -> deletions = deletions - 1; whole = false; held[0] = false; held[1] = false }
#else
  :: d_step { (deletions > 0) -> deletions = deletions - 1; whole = false; losses = losses + 1;
              held[0] = false; held[1] = false; ever[0] = 0; ever[1] = 0 }
#endif
  :: d_step { (!open && opens > 0) -> opens = opens - 1; open = true }
  :: open -> open = false
  od
}

init { atomic { run Retry(0); run Retry(1); run World() } }
