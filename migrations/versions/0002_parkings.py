"""How often deliveries were parked, per destination and reason: a total that only grows.

Revision ID: 0002
Revises: 0001

Deliveries are parked by the journal, by dispatch and by commands of people, all of which write a row of `parked`. The
total is raised by a trigger in the same transaction, so that it is exact whoever parks and whatever dies afterwards;
no process could count what a command of a person does. A replay takes the row of `parked` away and leaves the total.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

PARKINGS = """
CREATE TABLE parkings (
    destination_id int NOT NULL,
    reason text NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (destination_id, reason)
) WITH (fillfactor = 50);
INSERT INTO parkings (destination_id, reason, n) SELECT destination_id, reason, count(*) FROM parked GROUP BY 1, 2;

-- Rows are raised in order, and after every other lock of the transaction: no two can wait for each other.
CREATE FUNCTION count_parkings() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO parkings AS p (destination_id, reason, n)
    SELECT destination_id, reason, count(*) FROM fresh GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (destination_id, reason) DO UPDATE SET n = p.n + excluded.n;
    RETURN NULL;
END $$;
CREATE TRIGGER parked_counted AFTER INSERT ON parked
    REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION count_parkings();
"""


def upgrade() -> None:
    op.execute(PARKINGS)


def downgrade() -> None:
    raise NotImplementedError("revisions only go forward; restore a backup instead")
