-- What the mechanism of a step keeps for the next one, which may be more than a minibatch. Earlier
-- rows stay: the minibatch so far, or zeros where the mechanism has no state.

ALTER TABLE models RENAME COLUMN pending TO mechanism_state;
